"""What a measurement is, and how one compares with another."""

from __future__ import annotations

from enum import StrEnum

import msgspec


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


class Skipped(Exception):  # noqa: N818 - not an error: a subject that this machine can't run, said aloud
    """A subject can't be measured here; the text says why."""
