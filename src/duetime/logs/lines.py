"""Text as it comes from a pipe, cut into lines that can be kept: whole, clean, and not more than an attempt may hold.

Pure: no clock, no disk. Once a log is full, text is only counted, at no cost per line: a program that prints for hours
must not make its node slow.
"""

from __future__ import annotations

import re
from io import IncrementalNewlineDecoder

from duetime.ports.logs import Stream

LONGEST_LINE_BYTES = 16 * 1024
# What a line takes of the cap at least: a flood of empty lines would else be kept at forty times its size.
LEAST_BYTES_A_LINE = 16

# Colours and cursor moves of a terminal, whole; other control characters, alone. A tab stays.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0a-\x1f\x7f]")
_KIB, _MIB = 1024, 1024 * 1024


def size_of(text: str) -> int:
    """Bytes of its UTF-8. (Of plain ASCII this looks at nothing but the length.)"""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Cutter:
    """The lines of one attempt, out of the streams that they come in."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._full = False
        self._begun: dict[Stream, str] = {}  # lines whose end has not come yet
        self._line_ends: dict[Stream, IncrementalNewlineDecoder] = {}
        self.left_out_bytes = 0

    def cut(self, stream: Stream, text: str) -> list[str]:
        """The lines that end in this text. A line ends in \\n, \\r\\n or \\r: a progress bar is many lines."""
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
        """The lines that nobody ended; then, if something was left out, a line that says how much."""
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
        """False if the log is full now, with what this line has too much of counted."""
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
    """Without control characters, and with nothing that UTF-8 can't say."""
    if not line.isascii():
        try:
            line.encode()
        except UnicodeEncodeError:  # halves of pairs: those that stand together are one sign, the others none
            line = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return line if line.isprintable() else _CONTROLS.sub("", line)


def in_words(size: int) -> str:
    if size >= _MIB:
        return f"{size / _MIB:.1f} MiB"
    return f"{size / _KIB:.1f} KiB" if size >= _KIB else f"{size} bytes"


def _first_piece(text: str) -> str:
    """As much of the beginning as one line may hold."""
    if text.isascii():
        return text[:LONGEST_LINE_BYTES]
    head = text[:LONGEST_LINE_BYTES].encode("utf-8", "surrogatepass")[:LONGEST_LINE_BYTES]
    for cut in range(3):  # bytes of a sign that did not fit as a whole
        try:
            return head[: len(head) - cut].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
    return head[:-3].decode("utf-8", "surrogatepass")
