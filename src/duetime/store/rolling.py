"""What both stores need of statistics: rows as the columns of a table, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from duetime.domain.statistics import MOST_KEYS, StatisticsRow, Tally, bucket_of

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Tally).decode

COLUMNS = ("spans", "bucket_ats", "tenants", "types", "subjects", "nodes", "tallies")
MOST_ROLLED_KEYS = 2 * MOST_KEYS  # of one bucket, whatever the number of nodes


def read_rows(rows: Iterable[Sequence[Any]]) -> list[StatisticsRow]:
    return [
        StatisticsRow(span, at, tenant, kind, subject, node, _decode(tally))
        for span, at, tenant, kind, subject, node, tally in rows
    ]


def columns_of(rows: Sequence[StatisticsRow]) -> dict[str, list[Any]]:
    return {
        "spans": [row.span for row in rows],
        "bucket_ats": [row.bucket_at for row in rows],
        "tenants": [row.tenant for row in rows],
        "types": [row.type for row in rows],
        "subjects": [row.subject for row in rows],
        "nodes": [row.node for row in rows],
        "tallies": [_encode(row.tally).decode() for row in rows],
    }


def bounds(first_at: int, into: int | None, until: int) -> tuple[int, int]:
    """Returns the bounds of the buckets that are moved together: those in one bucket of `into`, or all."""
    if into is None:
        return first_at, until
    since = bucket_of(first_at, into)
    return since, min(until, since + into)
