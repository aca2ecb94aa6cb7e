"""What a measurement is, and how one compares with another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum

import msgspec

from bench.machine import busy_share


class Kind(StrEnum):
    US = "Duetime"
    PEER = "peer"
    LIMIT = "bare limit"


class Result(msgspec.Struct, frozen=True):
    """One subject measured under one workload. `figures` keeps the order in which they are shown."""

    table: str  # a key of `report.TABLES`
    subject: str
    kind: Kind
    figures: dict[str, float]
    note: str = ""
    disturbed: float = 0.0  # the share of the machine that others were using just before


class Skipped(Exception):
    """A subject can't be measured here; the text says why."""


def measured(table: str, subject: str, kind: Kind, measure: Callable[[], dict[str, float]], note: str = "") -> Result:
    """Measure one subject, and say aloud when that can't be done: the others are measured all the same."""
    print(f"  {table}: {subject} …", flush=True)
    disturbed = busy_share()
    try:
        return Result(table, subject, kind, measure(), note, disturbed)
    except (Skipped, RuntimeError, OSError) as reason:
        print(f"  SKIPPED {subject}: {reason}", file=sys.stderr, flush=True)
        return Result(table, subject, kind, {}, f"skipped: {str(reason).splitlines()[-1][:120]}")
