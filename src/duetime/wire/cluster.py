"""The cluster: its nodes, and the workers that run Python functions."""

from __future__ import annotations

import msgspec

from duetime.wire.words import ABSENT, Instant, StandingWord


class OwnStanding(msgspec.Struct, frozen=True):
    """The node that responds, as it sees itself: `trusted` fires for the shards it owns; else it fires for none."""

    id: int
    name: str
    standing: StandingWord
    owned_shards: int = 0


class NodeView(msgspec.Struct, frozen=True):
    """`lease_ends_in_ms` counts from the last heartbeat, not a second ago; null where leases don't end (SQLite)."""

    id: int
    name: str
    roles: list[str] = []
    lease_ends_in_ms: int | None = None
    owned_shards: int = 0
    runs_housekeeping: bool = False


class Cluster(msgspec.Struct, frozen=True):
    node: OwnStanding
    nodes: list[NodeView] = []
    shards: int = 0
    unowned_shards: list[int] = []


class WorkerView(msgspec.Struct, frozen=True):
    """A worker that runs Python functions now."""

    worker_id: int
    name: str
    functions: tuple[str, ...] = ()
    slots: int = 0
    user_id: str = ""
    joined_at: Instant = ABSENT
    seen_at: Instant = ABSENT


class WorkerList(msgspec.Struct, frozen=True):
    """`next_cursor` leads to the next page, if there is one."""

    workers: list[WorkerView]
    limit: int = 0
    has_more: bool = False
    next_cursor: str | None = None
