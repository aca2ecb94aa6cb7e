"""The figures of a node that are read when somebody asks: how much of what there is now. Counters are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from duetime.domain.capacity import Capacity, Load
from duetime.domain.troubles import PlaceUse
from duetime.ports.usage import LogUsage, StoreUsage

ByTenant = Mapping[str, int]

# The stages of an execution on a node, in order.
DUE = "due"  # its timer is due and was not fired yet
QUEUED = "queued"  # this node has claimed it; it waits for a place
RECORDING = "recording"  # its attempt has ended, and the end is not written yet
STAGES = (DUE, QUEUED, RECORDING)


class EngineReadings(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine of this node holds. Built by `duetime.engine.readings`."""

    in_flight: Mapping[str, int]  # running attempts, by type of job; of functions: by workers that poll this node
    limits: Mapping[str, int]  # on them, by type of job
    waiting: Mapping[str, ByTenant]  # executions, by stage (STAGES) and tenant
    targets: Sequence[PlaceUse]  # those with most executions that wait here for a place
    places: int  # of memory for claims that are taken
    most_places: int
    read_ahead: int  # timers in memory that are not due yet, or not fired yet
    shards: int  # owned now
    services: Mapping[str, bool]  # whether the last turn of each succeeded
    circuits: Mapping[str, int]  # known circuits, by state
    workers: int  # that have polled this node lately
    slots: int  # of these workers
    polls: int  # open now


class StoreTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, over all nodes: the same on each of them. `waiting` has the largest tenants only."""

    executions: Mapping[str, int]  # by state
    waiting: Mapping[str, ByTenant]  # QUEUED and RETRYING, by state and tenant
    dead_letters: int  # counted up to a limit
    jobs: Mapping[str, int] = {}  # by status


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a node. None: the store could not be read."""

    node: int
    name: str
    version: str
    roles: tuple[str, ...]
    store_up: bool  # the store could be read
    load: Load | None
    capacity: Capacity
    clock_offset: int | None  # ms ahead of the database's clock; None: there is no other clock
    nodes: int  # alive, as of the last heartbeat
    free_shards: int  # without a living owner
    engine: EngineReadings
    store: StoreUsage
    totals: StoreTotals | None
    functions_without_worker: int | None
    logs: LogUsage
    followers: int  # of events
    streams: int  # open, of events and logs
    most_streams: int
