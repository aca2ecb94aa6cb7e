"""The weight of JSON: an estimate of the memory and time that its values take when they are decoded.

A decoded value takes about twenty times the bytes that it has in JSON, and a list or an object takes five times as long
as a number. So the weight is the number of values, where each list and object counts as five.
"""

from __future__ import annotations

MOST_WEIGHT = 100_000  # of a body: about ten milliseconds to decode, check and encode it
LIGHT_BYTES = 16 * 1024  # a body of up to this size can't be too heavy
VALUE_BYTES = 16  # of memory, for each unit of weight

_CONTAINER = 4  # in addition to the one that every value counts


def weigh(text: bytes) -> int:
    """Returns an upper bound of the weight: it counts commas and brackets in strings, too. 1 ms for a megabyte."""
    lists = text.count(b"[") if b"[" in text else 0  # a search is ten times as fast as a count
    return text.count(b",") + _CONTAINER * (lists + text.count(b"{"))


def is_too_heavy(text: bytes, most: int = MOST_WEIGHT) -> bool:
    """Returns whether JSON weighs more than `most`. The contents of strings do not count."""
    if len(text) <= LIGHT_BYTES or weigh(text) <= most:
        return False
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    if plain.count(b'"') > 4 * most:  # no value has more than a name and a text, of two quotes each
        return True
    return weigh(b"".join(plain.split(b'"')[::2])) > most


def memory_of(text: bytes, weight: int) -> int:
    """Returns an estimate of the bytes that lines of jobs take until they are written, as text and decoded."""
    return len(text) + VALUE_BYTES * weight
