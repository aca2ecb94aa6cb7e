"""Cuts text from a pipe into lines that can be stored: whole, clean, and within the limit of an attempt.

Pure: no clock, no disk. Once a log is full, text is only counted, at no cost per line: a program that prints for hours
must not slow its node down.
"""

from __future__ import annotations

import re
from io import IncrementalNewlineDecoder

from duetime.ports.logs import Stream

LONGEST_LINE_BYTES = 16 * 1024
# The least that a line counts towards the limit: otherwise a flood of empty lines would take forty times its size.
LEAST_BYTES_A_LINE = 16

# Whole terminal escape sequences (colours, cursor moves), and single other control characters. Tabs stay.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f]")
_KIB, _MIB = 1024, 1024 * 1024


def size_of(text: str) -> int:
    """Returns the size in UTF-8 bytes. (For plain ASCII that is the length.)"""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Cutter:
    """Cuts the streams of one attempt into lines."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._full = False
        self._begun: dict[Stream, str] = {}  # incomplete lines
        self._line_ends: dict[Stream, IncrementalNewlineDecoder] = {}
        self.left_out_bytes = 0

    def cut(self, stream: Stream, text: str) -> list[str]:
        """Returns the lines that end in this text. A line ends in \\n, \\r\\n or \\r: a progress bar is many lines."""
        if self._full:
            self.left_out_bytes += size_of(text)
            return []
        line_ends = self._line_ends.get(stream)
        if line_ends is None:
            line_ends = self._line_ends[stream] = IncrementalNewlineDecoder(None, translate=True)
        return self._cut(stream, self._begun.pop(stream, "") + line_ends.decode(text))

    def _cut(self, stream: Stream, text: str) -> list[str]:
        lines: list[str] = []
        start = 0
        while (end := text.find("\n", start)) >= 0:
            if not self._take(text[start:end], lines):
                self.left_out_bytes += 1 + size_of(text[end + 1 :])
                return lines
            start = end + 1
        rest = text[start:]
        while size_of(rest) > LONGEST_LINE_BYTES:
            piece = _first_piece(rest)
            if not self._take(piece, lines):
                self.left_out_bytes += size_of(rest[len(piece) :])
                return lines
            rest = rest[len(piece) :]
        if rest:
            self._begun[stream] = rest
        return lines

    def finish(self) -> list[tuple[Stream, str]]:
        """Returns the incomplete lines, then, if text was left out, a line that says how much."""
        lines: list[tuple[Stream, str]] = []
        for stream, text in self._begun.items():
            taken: list[str] = []
            if self._full:
                self.left_out_bytes += size_of(text)
            else:
                self._take(text, taken)
            lines += [(stream, line) for line in taken]
        self._begun.clear()
        if self.left_out_bytes:
            lines.append(("log", self._sentence()))
        return lines

    def _take(self, text: str, lines: list[str]) -> bool:
        """Takes a line. Returns False if the log is full now; the part that does not fit is counted as left out."""
        text = clean(text)
        while True:
            piece = text if size_of(text) <= LONGEST_LINE_BYTES else _first_piece(text)
            charge = max(size_of(piece) + 1, LEAST_BYTES_A_LINE)
            if self._used + charge > self._limit:
                self._full = True
                self.left_out_bytes += size_of(text)
                return False
            self._used += charge
            lines.append(piece)
            if len(piece) == len(text):
                return True
            text = text[len(piece) :]

    def _sentence(self) -> str:
        return f"the log is full at {in_words(self._limit)}: {self.left_out_bytes:,} bytes more were left out"


def clean(line: str) -> str:
    """Returns the line without control characters, and without text that UTF-8 can't encode."""
    if not line.isascii():
        try:
            line.encode()
        except UnicodeEncodeError:  # surrogates: a pair becomes one character, a lone one is replaced
            line = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return line if line.isprintable() else _CONTROLS.sub("", line)


def in_words(size: int) -> str:
    if size >= _MIB:
        return f"{size / _MIB:.1f} MiB"
    return f"{size / _KIB:.1f} KiB" if size >= _KIB else f"{size} bytes"


def _first_piece(text: str) -> str:
    """Returns as much of the beginning as one line may hold."""
    if text.isascii():
        return text[:LONGEST_LINE_BYTES]
    head = text[:LONGEST_LINE_BYTES].encode("utf-8", "surrogatepass")[:LONGEST_LINE_BYTES]
    for cut in range(3):  # drop the bytes of a character that was cut
        try:
            return head[: len(head) - cut].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
    return head[:-3].decode("utf-8", "surrogatepass")
