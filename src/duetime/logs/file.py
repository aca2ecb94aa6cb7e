"""One log as a file of JSON lines, which are appended and never changed. Blocking: call it from threads only.

A torn line (the machine died, the disk was full) has no end, or can't be decoded. Readers skip it, and the next append
begins on a new line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from duetime.logs.lines import LONGEST_LINE_BYTES, size_of
from duetime.logs.memory import PAGE_BYTES
from duetime.ports.logs import Line
from duetime.private_files import make_folder

OWNER_ONLY = 0o600
BLOCK_BYTES = 64 * 1024
# Holds a whole line before a torn one: JSON at most doubles the text, which has no control characters.
TAIL_BYTES = 4 * (LONGEST_LINE_BYTES + 64)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class Appended(NamedTuple):
    numbered: int | None  # lines of the attempt that were in the file before; None if unknown
    lines: int  # how many of the given lines are in the file now
    bytes: int
    error: OSError | None = None


def append(path: str, attempt: int, lines: Sequence[Line], settled: bool) -> Appended:
    """Appends these lines. Unless `settled`, they are numbered from 1, and the count of earlier lines is added here."""
    try:
        file = _open(path)
    except OSError as error:
        return Appended(None if settled or os.path.lexists(path) else 0, 0, 0, error)
    try:
        size = os.fstat(file).st_size
        numbered = 0 if settled or not size else _numbered(file, size, attempt)
        fresh = not size or os.pread(file, 1, size - 1) == b"\n"
    except OSError as error:
        os.close(file)
        return Appended(None, 0, 0, error)
    encoded = [_encode(line, numbered) for line in lines]
    written, trouble = _write(file, b"".join(encoded) if fresh else b"\n" + b"".join(encoded))
    try:
        os.close(file)
    except OSError as error:  # a network file system may report a lost write only now
        return Appended(numbered, 0, 0, error)
    return Appended(numbered, _whole(encoded, written if fresh else written - 1), written, trouble)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, OWNER_ONLY)
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        return os.open(path, flags, OWNER_ONLY)


def _encode(line: Line, numbered: int) -> bytes:
    if numbered:
        line = msgspec.structs.replace(line, number=line.number + numbered)
    return _encoder.encode(line) + b"\n"


def _write(file: int, data: bytes) -> tuple[int, OSError | None]:
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError as error:
        return written, error
    return written, None


def _whole(encoded: Sequence[bytes], written: int) -> int:
    """Returns how many complete lines this many written bytes hold."""
    for count, line in enumerate(encoded):
        written -= len(line)
        if written < 0:
            return count
    return len(encoded)


def _numbered(file: int, size: int, attempt: int) -> int:
    """Returns how many lines this attempt has. It reads the end of the file, and all of it only if no line is there."""
    tail = os.pread(file, TAIL_BYTES, max(0, size - TAIL_BYTES))
    for raw in reversed(tail.split(b"\n")):
        line = _decode(raw)
        if line is not None and line.attempt == attempt:
            return line.number & 0xFFFF_FFFF
    numbers = (line.number for line, _ in _lines(file, 0) if line is not None and line.attempt == attempt)
    return max(numbers, default=0) & 0xFFFF_FFFF


class Scanned(NamedTuple):
    lines: list[Line]
    place: tuple[int, int]  # a line's number, and the offset after it
    size: int | None  # of the file, if the scan reached its end


def scan(path: str, place: tuple[int, int], after: int, limit: int) -> Scanned:
    """Returns a page of lines beyond `after`, in order. The scan starts at `place`, which must lie before them."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _scan(file.fileno(), place, after, limit)
    except FileNotFoundError:
        return Scanned([], (0, 0), 0)


def _scan(file: int, place: tuple[int, int], after: int, limit: int) -> Scanned:
    size = os.fstat(file).st_size
    last, offset = place if place[1] <= size else (0, 0)  # the file was removed and created again
    found: list[Line] = []
    left = PAGE_BYTES
    for line, end in _lines(file, offset):
        # A repeated or smaller number comes from a node whose lease had expired: the first line counts.
        if line is not None and line.number > last:
            if line.number > after:
                left -= size_of(line.text) + 1
                if found and left < 0:
                    return Scanned(found, (last, offset), None)
                found.append(line)
            last = line.number
        offset = end
        if len(found) >= limit:
            return Scanned(found, (last, offset), None)
    return Scanned(found, (last, offset), size)


class Measured(NamedTuple):
    bytes: int = 0
    last: int = 0
    offset: int = 0


def measure(path: str, known: Measured) -> Measured:
    """Returns the bytes of all lines' texts. It continues from an earlier measurement."""
    try:
        with open(path, "rb", buffering=0) as file:
            count, last, offset = known if known.offset <= os.fstat(file.fileno()).st_size else Measured()
            for line, end in _lines(file.fileno(), offset):
                if line is not None and line.number > last:
                    count, last = count + size_of(line.text) + 1, line.number
                offset = end
            return Measured(count, last, offset)
    except FileNotFoundError:
        return Measured()


def _lines(file: int, offset: int) -> Iterator[tuple[Line | None, int]]:
    """Yields each complete line (None: it can't be decoded), with the offset of the next one."""
    rest, at = b"", offset
    while block := os.pread(file, BLOCK_BYTES, at):
        at += len(block)
        *whole, rest = (rest + block).split(b"\n")
        for raw in whole:
            offset += len(raw) + 1
            yield _decode(raw), offset


def _decode(raw: bytes) -> Line | None:
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
