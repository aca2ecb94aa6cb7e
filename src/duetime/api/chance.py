"""The random part of the ids that people are given.

An id of a job or an execution begins with its millisecond. Within one, ten random bytes would shuffle what was created
in order: a list "latest first" would show the second of two jobs below the first. So the bytes are one large number
that rises by a random step. Ids of requests have no order, and are random from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_REQUEST_ID_BYTES = 16
_REQUEST_IDS_AT_ONCE = 256
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


def request_ids(entropy: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yields request ids without end: 32 hexadecimal digits each, all of them random.

    Nobody can guess another's id, or tell from two of its own how many requests came between them. The random bytes
    are drawn for many ids at a time: a draw for each would cost a microsecond of every request.
    """
    while True:
        digits = entropy(_REQUEST_ID_BYTES * _REQUEST_IDS_AT_ONCE).hex().encode()
        length = 2 * _REQUEST_ID_BYTES
        for start in range(0, len(digits), length):
            yield digits[start : start + length]
