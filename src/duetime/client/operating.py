"""What a server answers to those who run it: workers, connections, circuits, the cluster, health.

As tolerant as `models.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from duetime.client.models import Answered

if TYPE_CHECKING:
    from duetime.domain.lease import Standing

    StandingWord = Standing | str
else:  # as in `models.py`
    StandingWord = str


class WorkerEntry(Answered, frozen=True):
    """A worker that runs Python functions now."""

    worker_id: int
    name: str
    functions: tuple[str, ...] = ()
    slots: int = 0
    user_id: str = ""
    joined_at: datetime | None = None
    seen_at: datetime | None = None


class WorkerList(Answered, frozen=True):
    """`next_cursor` leads to the next page, if there is one."""

    workers: list[WorkerEntry]
    limit: int = 0
    has_more: bool = False
    next_cursor: str | None = None


class Connection(Answered, frozen=True):
    """`shown` is where it leads to, without user and password."""

    name: str
    shown: str = ""
    created_at: datetime | None = None
    created_by: str = ""


class ConnectionList(Answered, frozen=True):
    connections: list[Connection]


class ConnectionMessage(Answered, frozen=True):
    name: str
    message: str = ""


class Subscription(Answered, frozen=True):
    """A URL that is told of these events. `warnings`: why nothing will get there, as far as the server can tell."""

    subscription_id: str
    url: str = ""
    events: tuple[str, ...] = ()
    created_at: datetime | None = None
    created_by: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


class SubscriptionList(Answered, frozen=True):
    subscriptions: list[Subscription]


class SubscriptionMessage(Answered, frozen=True):
    subscription_id: str
    message: str = ""


class OtherSigningKey(Answered, frozen=True):
    """Signs the same requests while keys rotate. `until`: when it no longer does; None: the operator ends it."""

    version: int
    secret: str
    until: datetime | None = None

    def __repr__(self) -> str:
        return f"OtherSigningKey(version={self.version!r}, until={self.until!r})"


class SigningKey(Answered, frozen=True):
    """`secret` is what the tenant's receivers verify requests with."""

    version: int
    secret: str
    rotated_at: datetime | None = None
    rotated_by: str | None = None
    others: tuple[OtherSigningKey, ...] = ()

    def __repr__(self) -> str:
        return f"SigningKey(version={self.version!r}, rotated_at={self.rotated_at!r})"


class Circuit(Answered, frozen=True):
    """A target that failed since it last succeeded. `state`: CLOSED, OPEN or HALF_OPEN."""

    circuit: str
    url: str
    state: str
    failures: int = 0
    opened_at: datetime | None = None
    next_probe_at: datetime | None = None


class CircuitList(Answered, frozen=True):
    circuits: list[Circuit]


class CircuitMessage(Answered, frozen=True):
    circuit: str
    message: str = ""


class OwnStanding(Answered, frozen=True):
    """The node that answered, as it sees itself."""

    id: int
    name: str
    standing: StandingWord
    owned_shards: int = 0


class Node(Answered, frozen=True):
    id: int
    name: str
    roles: list[str] = msgspec.field(default_factory=list)
    lease_ends_in_ms: int | None = None
    owned_shards: int = 0
    runs_housekeeping: bool = False


class Cluster(Answered, frozen=True):
    node: OwnStanding
    nodes: list[Node] = msgspec.field(default_factory=list)
    shards: int = 0
    unowned_shards: list[int] = msgspec.field(default_factory=list)


class MemoryHealth(Answered, frozen=True):
    current_bytes: int = 0
    limit_bytes: int | None = None
    available_bytes: int | None = None
    utilization_percent: float | None = None
    resident_bytes: int = 0


class JobsHealth(Answered, frozen=True):
    current_count: int = 0
    limit: int | None = None
    available: int | None = None


class Health(Answered, frozen=True):
    """`status` is ok or degraded; the rest is there if it was asked for (verbose)."""

    status: str
    components: dict[str, str] = msgspec.field(default_factory=dict)
    memory: MemoryHealth | None = None
    jobs: JobsHealth | None = None
