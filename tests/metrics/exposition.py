"""Reads the protobuf form of metrics: a small decoder of the wire format, written from its specification."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def unzigzag(value: int) -> int:
    return value >> 1 if value % 2 == 0 else -(value + 1) >> 1


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        match key & 7:
            case 0:
                value, at = varint(data, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, struct.unpack_from("<d", data, at)[0]
                at += 8
            case 2:
                size, at = varint(data, at)
                yield key >> 3, data[at : at + size]
                at += size
            case kind:
                raise ValueError(f"wire type {kind} at {at}")


def message(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for field, value in fields(data):
        found.setdefault(field, []).append(value)
    return found


def families(data: bytes) -> dict[str, dict[int, list[Any]]]:
    """Returns the MetricFamily messages by name."""
    found, at = {}, 0
    while at < len(data):
        size, at = varint(data, at)
        family = message(data[at : at + size])
        found[family[1][0].decode()] = family
        at += size
    return found


def labels(metric: dict[int, list[Any]]) -> dict[str, str]:
    pairs = (message(pair) for pair in metric.get(1, ()))
    return {pair[1][0].decode(): pair[2][0].decode() for pair in pairs}


def native(histogram: dict[int, list[Any]]) -> dict[int, int]:
    """Returns the counts of a native histogram by the numbers of their buckets."""
    deltas, at = list[int](), 0
    data = histogram[13][0] if 13 in histogram else b""
    while at < len(data):
        value, at = varint(data, at)
        deltas.append(unzigzag(value))
    counts: dict[int, int] = {}
    number, count = 0, 0
    left = iter(deltas)
    for span in map(message, histogram.get(12, ())):
        number += unzigzag(span[1][0])
        for _ in range(span[2][0]):
            count += next(left)
            counts[number] = count
            number += 1
    assert next(left, None) is None
    return counts
