"""How much of their room the store and the logs use now. From memory: reading it waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class PoolUsage(msgspec.Struct, frozen=True):
    """Connections to the database that serve one group of reads."""

    busy: int
    idle: int
    most: int


class StoreUsage(msgspec.Struct, frozen=True):
    """`waiting`: batches of commands that wait for the writer. At `most_waiting` further ones are refused."""

    waiting: int
    most_waiting: int
    pools: Mapping[str, PoolUsage]  # by group: engine, own, people


class LogUsage(msgspec.Struct, frozen=True):
    stored_bytes: int  # since the start of this process
    lost_lines: int  # since the start of this process
    waiting_bytes: int  # in memory, not stored yet
