"""Circuits: targets that fail."""

from __future__ import annotations

import msgspec

from duetime.wire.words import CircuitWord, Instant


class CircuitView(msgspec.Struct, frozen=True):
    """`url`: for admins the whole URL. Others see only its host, because a path may hold a secret."""

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
