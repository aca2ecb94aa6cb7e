"""A chunk of a log as an object. Its name holds the line numbers and the size, so that a listing replaces many reads.

`<day>/<execution id>/<attempt>-<first>-<last>-<bytes>.jsonl`: the lines `first` to `last` of that attempt, and the
bytes of their texts. Names sort as their lines do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from duetime.logs.days import day_of
from duetime.logs.lines import size_of
from duetime.ports.logs import Line

_NAME = re.compile(r"(\d{5,})-(\d{10})-(\d{10})-(\d+)\.jsonl")
_PLACE = 0xFFFF_FFFF

encode_lines = msgspec.json.Encoder().encode_lines
_decoder = msgspec.json.Decoder(Line)


class Chunk(NamedTuple):
    first: int  # line numbers, with the attempt in the upper 32 bits
    last: int
    bytes: int
    path: str

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


def folder_of(execution_id: str) -> str:
    return f"{day_of(execution_id)}/{execution_id}"


def before_attempt(execution_id: str, attempt: int) -> str:
    """Returns a path that sorts before the chunks of this attempt, and after those of earlier attempts."""
    return f"{folder_of(execution_id)}/{attempt:05}-"


def chunk_of(execution_id: str, lines: Sequence[Line]) -> Chunk:
    first, last = lines[0].number, lines[-1].number
    count = sum(size_of(line.text) + 1 for line in lines)
    name = f"{first & _PLACE:010}-{last & _PLACE:010}-{count}.jsonl"
    return Chunk(first, last, count, before_attempt(execution_id, first >> 32) + name)


def parse_chunk(path: str) -> Chunk | None:
    """Returns None for an object that is not a chunk."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    attempt, first, last, count = (int(part) for part in match.groups())
    return Chunk((attempt << 32) + first, (attempt << 32) + last, count, path)


def decode_lines(data: bytes) -> list[Line]:
    """Returns no lines if the data can't be decoded: the object was changed from outside."""
    try:
        return _decoder.decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
