"""The chance in the ids that people are given: each above the last, so that what came later sorts later.

An id begins with its millisecond. Within one, ten random bytes would shuffle what was created in order: a list "latest
first" would show the second of two jobs below the first. So the bytes are one large number that rises by a random step.
"""

from __future__ import annotations

from collections.abc import Callable

_ROOM = 72  # bits of the first number; the ids hold 74, so that steps of 32 bits don't run out
_LOW = (1 << 62) - 1


def rising(entropy: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """A source of ten bytes for `make_id`, drawn from `entropy`, whose ids of one instant rise."""
    number = int.from_bytes(entropy(_ROOM // 8), "big")

    def draw(_: int) -> bytes:
        nonlocal number
        number += 1 + int.from_bytes(entropy(4), "big")
        # 12 bits, then the two that the variant takes away, then 62, then four that an id has no room for.
        return ((number >> 62 & 0xFFF) << 68 | (number & _LOW) << 4).to_bytes(10, "big")

    return draw
