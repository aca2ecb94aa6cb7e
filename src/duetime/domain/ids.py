"""Ids are UUIDv7 text: they begin with an instant, so that sorting by id is sorting by time.

A job's id begins with its creation, an execution's with the instant that it is scheduled for. Random bytes are an
argument. A unique index of the store, and not the id, ensures that an instant has one execution.
"""

from __future__ import annotations

import re
from functools import lru_cache

SHARDS = 64
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def make_id(at: int, random_bytes: bytes) -> str:
    """Returns a UUIDv7 of the instant `at` from ten random bytes."""
    return _uuid7(at, random_bytes.hex())


def execution_id(scheduled_at: int, number: int) -> str:
    """Returns an execution's id from its instant and a random number of 72 bits.

    A page of executions takes consecutive numbers from a random first one. A collision is as unlikely as with random
    ids, but the rows are neighbours in the store: a thousand scattered ids would touch a thousand of its pages.
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
    """Returns the instant that an id begins with."""
    return int(text[:8] + text[9:13], 16)


def shard_of(job_id: str) -> int:
    """Returns the job's shard, from the last digits of its id: these are random, so jobs are spread evenly."""
    return int(job_id[-4:], 16) % SHARDS
