"""How heavy JSON is: what its values cost when they are decoded, beside its bytes.

A byte of text costs a byte. A value in Python takes some twenty times the bytes that it has in JSON, and a list or an
object takes five times as long as a number. So a weight is the number of values, with five for each list and object.
"""

from __future__ import annotations

MOST_WEIGHT = 100_000  # of a body: some ten milliseconds to decode, check and encode it
LIGHT_BYTES = 16 * 1024  # a body of so many bytes can't be heavy
VALUE_BYTES = 16  # of memory, for each unit of weight

_CONTAINER = 4  # beside the one for its place among other values


def weigh(text: bytes) -> int:
    """The weight at most: a comma or a bracket inside a string counts, too. A megabyte takes a millisecond."""
    lists = text.count(b"[") if b"[" in text else 0  # looking for one is ten times as fast as counting them
    return text.count(b",") + _CONTAINER * (lists + text.count(b"{"))


def is_too_heavy(text: bytes, most: int = MOST_WEIGHT) -> bool:
    """Whether JSON weighs more than it may. What stands in strings does not count."""
    if len(text) <= LIGHT_BYTES or weigh(text) <= most:
        return False
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    if plain.count(b'"') > 4 * most:  # no value has more than a name and a text, of two quotes each
        return True
    return weigh(b"".join(plain.split(b'"')[::2])) > most


def memory_of(text: bytes, weight: int) -> int:
    """Bytes that lines of jobs take until they are written, decoded and not: an estimate for counting them."""
    return len(text) + VALUE_BYTES * weight
