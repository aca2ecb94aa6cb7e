"""What the API needs of the node it runs in, and who is asking."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from duetime.domain.lease import Standing, View
from duetime.ports.clock import Clock
from duetime.ports.store import Store
from duetime.telemetry.events import EventHub

TENANT = "default"  # until there is identity, everything belongs to the local admin's tenant
OWNER = "local"


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as this node knows it: `view` is of its last heartbeat, the rest is of now."""

    node: int
    name: str
    standing: Standing
    owned: Collection[int]
    view: View | None


class ApiContext(msgspec.Struct, frozen=True):
    store: Store
    clock: Clock
    events: EventHub
    entropy: Callable[[int], bytes]
    due_hint: Callable[[int], None]  # a job is due then: the timer should know
    waiting_hint: Callable[[int], None]  # an execution waits since then: the claimer should know
    cancel_running: Callable[[str], bool]
    engine_health: Callable[[], dict[str, str]]
    cluster: Callable[[], ClusterState]
