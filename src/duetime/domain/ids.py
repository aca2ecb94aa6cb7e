"""Ids are UUIDv7 text: they begin with an instant, so that sorting by id is sorting by time.

A job's id begins with its creation, an execution's with the instant that it is scheduled for. Random bytes are an
argument. The store's unique index, and not the id, makes an execution the only one of its instant.
"""

from __future__ import annotations

import re
from functools import lru_cache

SHARDS = 64
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def make_id(at: int, random_bytes: bytes) -> str:
    """A UUIDv7 of the instant `at` from ten random bytes."""
    return _uuid7(at, random_bytes.hex())


def execution_id(scheduled_at: int, number: int) -> str:
    """An execution's id from its instant and a random number of 72 bits.

    A page of executions takes consecutive numbers from a random first: as unlikely to meet another as any random id,
    but neighbours in the store, where a thousand scattered ids would touch a thousand pages.
    """
    return _uuid7(scheduled_at, f"{number & _BITS_72:019x}")


_BITS_72 = (1 << 72) - 1


def _uuid7(at: int, tail: str) -> str:
    # The variant's two bits replace the top two of the nibble at tail[3].
    return f"{_beginning(at)}{tail[:3]}-{_VARIANT[tail[3]]}{tail[4:7]}-{tail[7:19]}"


@lru_cache(maxsize=64)  # ids are made in bursts of the same instant
def _beginning(at: int) -> str:
    time = f"{at:012x}"
    return f"{time[:8]}-{time[8:]}-7"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def is_id(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def instant_of(text: str) -> int:
    """The instant that an id begins with."""
    return int(text[:8] + text[9:13], 16)


def shard_of(job_id: str) -> int:
    """The fixed partition a job belongs to; the last digits of a UUIDv7 are random, hence evenly spread."""
    return int(job_id[-4:], 16) % SHARDS
