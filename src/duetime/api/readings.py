"""Reads all figures of this node: from its parts, which costs little, and from the store, which is asked rarely.

A store that does not answer makes some figures unknown. All others are still read: they are needed most at that time.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Mapping

import msgspec

from duetime import __version__
from duetime.api.context import EngineLink
from duetime.api.streams import Streams
from duetime.domain.capacity import Capacity, Load
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import DuetimeError
from duetime.domain.states import State
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.logs import LogStore
from duetime.ports.records import BacklogRecord
from duetime.ports.store import Store
from duetime.telemetry.prometheus.families import OTHER
from duetime.telemetry.prometheus.gauges import MOST_TENANTS
from duetime.telemetry.readings import ByTenant, Readings, StoreTotals

STORE_SECONDS = 3.0  # for all reads of the store: a scraper waits ten seconds at most
KEPT_SECONDS = 10.0  # totals of the store are read at most that often, however many scrapers there are
MOST_DEAD_LETTERS = 10_000
MOST_WORKER_PAGES = 20
WORKER_PAGE = 1_000
MOST_LOOKED_FOR = 100  # functions for which the store is asked whether an execution waits

STAGE_OF = {State.QUEUED: "parked", State.RETRYING: "retrying"}


class _FromStore:
    def __init__(self, load: Load, totals: StoreTotals, functions_without_worker: int) -> None:
        self.load = load
        self.totals = totals
        self.functions_without_worker = functions_without_worker


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that are read. `functions`: those that had executions on this node; what waits no more is removed."""

    store: Store
    clock: Clock
    logs: LogStore
    events: EventHub
    streams: Streams
    engine: EngineLink
    capacity: Capacity
    roles: Collection[str]
    functions: set[tuple[str, int]]


class Reader:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._kept: _FromStore | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def read(self) -> Readings:
        sources = self._sources
        async with self._reading:
            stored = await self._read_store()
        cluster = sources.engine.cluster()
        view = cluster.view
        alive = {member.node for member in view.members} if view else {cluster.node}
        free = sum(holding.owner not in alive for holding in view.shards) if view else 0
        return Readings(
            node=cluster.node,
            name=cluster.name,
            version=__version__,
            roles=tuple(sorted(sources.roles)),
            store_up=stored is not None,
            load=None if stored is None else stored.load,
            capacity=sources.capacity,
            clock_offset=cluster.clock_offset,
            nodes=len(alive),
            free_shards=free,
            engine=sources.engine.readings(),
            store=sources.store.usage(),
            totals=None if stored is None else stored.totals,
            functions_without_worker=None if stored is None else stored.functions_without_worker,
            logs=sources.logs.usage(),
            followers=sources.events.followers,
            streams=len(sources.streams),
            most_streams=sources.streams.capacity,
        )

    async def _read_store(self) -> _FromStore | None:
        """Returns what the store holds. The load is always current; the rest may be some seconds old."""
        sources = self._sources
        try:
            async with asyncio.timeout(STORE_SECONDS):
                load = await sources.store.get_load()
                if self._kept is None or time.monotonic() - self._read_at >= KEPT_SECONDS:
                    record = await sources.store.get_backlog(2 * MOST_TENANTS, MOST_DEAD_LETTERS)
                    jobs = (await sources.store.get_all_totals()).jobs
                    without = await _count_without_worker(sources.store, sources.functions, sources.clock.now())
                    self._kept = _FromStore(load, _totals(record, jobs), without)
                    self._read_at = time.monotonic()
        except (DuetimeError, TimeoutError):
            return None
        self._kept.load = load
        return self._kept


def _totals(record: BacklogRecord, jobs: Mapping[str, int]) -> StoreTotals:
    executions = {str(state): record.executions.get(state, 0) for state in State}
    return StoreTotals(executions=executions, jobs=jobs, waiting=_waiting(record), dead_letters=record.dead_letters)


def _waiting(record: BacklogRecord) -> Mapping[str, ByTenant]:
    """Returns the waiting executions by stage and tenant. Those of tenants that are not listed are summed."""
    found: dict[str, dict[str, int]] = {stage: defaultdict(int) for stage in STAGE_OF.values()}
    for tenant, state, number in record.waiting:
        found[STAGE_OF[state]][tenant] += number
    for state, stage in STAGE_OF.items():
        rest = record.executions.get(state, 0) - sum(found[stage].values())
        found[stage][OTHER] += max(0, rest)  # two reads, one after the other: they may differ a little
    return found


async def _count_without_worker(store: Store, functions: set[tuple[str, int]], now: int) -> int:
    """Returns how many of these functions have a due execution and no worker. Forgets those that wait for nothing."""
    if not functions:
        return 0
    served = await _served(store)
    found = 0
    for tenant, endpoint in [one for one in functions if one not in served][:MOST_LOOKED_FOR]:
        waiting_at = await store.next_waiting_at(tenant, (endpoint,))
        if waiting_at is None:
            functions.discard((tenant, endpoint))
        found += waiting_at is not None and waiting_at <= now
    return found


async def _served(store: Store) -> set[tuple[str, int]]:
    served: set[tuple[str, int]] = set()
    before: int | None = None
    for _ in range(MOST_WORKER_PAGES):
        page = await store.list_workers(None, WORKER_PAGE, before)
        if not page:
            break
        served.update((it.tenant, endpoint_of_function(it.tenant, name)) for it in page for name in it.functions)
        before = page[-1].worker_id
    return served
