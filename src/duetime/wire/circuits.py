"""Circuits: targets that fail."""

from __future__ import annotations

import msgspec

from duetime.wire.words import CircuitWord, Instant


class CircuitView(msgspec.Struct, frozen=True):
    """`url` is whole for an admin; to others only its host is shown, for a path may be somebody's secret."""

    circuit: str
    url: str
    state: CircuitWord
    failures: int = 0
    opened_at: Instant | None = None
    next_probe_at: Instant | None = None


class CircuitList(msgspec.Struct, frozen=True):
    circuits: list[CircuitView]


class CircuitMessage(msgspec.Struct, frozen=True):
    circuit: str
    message: str = ""
