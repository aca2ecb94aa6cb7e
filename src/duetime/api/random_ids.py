"""The random part of ids.

An id of a job or an execution begins with its millisecond. With random bytes after it, the ids of one millisecond would
be in random order: a list "latest first" would show the second of two jobs below the first. So the bytes are one large
number that grows by a random step. Request ids have no order, and all their digits are random.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

_REQUEST_ID_BYTES = 16
_AT_ONCE = 256  # ids whose random bytes are read together: each read is a system call
_ROOM = 72  # bits of the first number; the ids hold 74, so that steps of 32 bits don't run out
_LOW = (1 << 62) - 1


def rising(random_bytes: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Returns a source of ten bytes for `make_id`, based on `random_bytes`: the ids of one instant grow."""
    number = int.from_bytes(random_bytes(_ROOM // 8), "big")
    steps = _steps(random_bytes)

    def draw(_: int) -> bytes:
        nonlocal number
        number += 1 + next(steps)
        # 12 bits, then the two that the variant takes away, then 62, then four that an id has no room for.
        return ((number >> 62 & 0xFFF) << 68 | (number & _LOW) << 4).to_bytes(10, "big")

    return draw


def _steps(random_bytes: Callable[[int], bytes]) -> Iterator[int]:
    while True:
        yield from struct.unpack(f">{_AT_ONCE}I", random_bytes(4 * _AT_ONCE))


def request_ids(random_bytes: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yields request ids without end: 32 random hexadecimal digits each.

    A caller can't guess the ids of other callers, or count the requests between two of its own.
    """
    while True:
        digits = random_bytes(_REQUEST_ID_BYTES * _AT_ONCE).hex().encode()
        length = 2 * _REQUEST_ID_BYTES
        for start in range(0, len(digits), length):
            yield digits[start : start + length]
