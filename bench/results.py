"""What a measurement is, and how one compares with another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from statistics import median

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


# Figures of which the worst round counts: a call that was missed once was missed.
WORST = ("missing", "repeated", "health_ms", "health_failed", "grown_mb")


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


def median_of(rounds: Sequence[Result]) -> Result:
    """Returns the median of each figure, or the worst one; a round that was skipped stands for all."""
    for result in rounds:
        if not result.figures:
            return result
    figures = {
        name: (max if name in WORST else median)(result.figures[name] for result in rounds)
        for name in rounds[0].figures
    }
    return msgspec.structs.replace(rounds[0], figures=figures, disturbed=max(result.disturbed for result in rounds))
