"""The engine: joins the cluster, runs one term after the other, and stops in an order that loses nothing."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from duetime.domain.commands import StartNode, StopNode
from duetime.domain.errors import StaleWrite
from duetime.domain.hint import Hint
from duetime.domain.lease import doubt_clock, is_long_after
from duetime.domain.node_report import CertificateFact, NodeFacts
from duetime.engine.event_log import EventFeeding, EventLog
from duetime.engine.membership import Membership
from duetime.engine.readings import read_term
from duetime.engine.redaction import Redaction
from duetime.engine.settings import EngineSettings
from duetime.engine.statistics import Collected
from duetime.engine.steady_clock import SteadyClock
from duetime.engine.stop_limit import LEAST_SECONDS, StopLimit, StopSteps, settled
from duetime.engine.term import Surroundings, Term
from duetime.engine.troubles import TroubleNotes
from duetime.events import EventFeed, EventHub
from duetime.ports.archive import AuditArchive
from duetime.ports.bus import Bus
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor
from duetime.ports.logs import LogStore
from duetime.ports.registry import Registry
from duetime.ports.store import Store, apply_one
from duetime.ports.vault import NoVault, Vault
from duetime.process.loop_lag import LoopLag
from duetime.telemetry.emitted import Fenced, LoopLagged, TurnFailed
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.readings import EngineReadings

REJOIN_SECONDS = 1.0
REST_IN_DOUBT_SECONDS = 3600.0  # retention pauses this long after a start if the newest entry of the ledger is old

log = structlog.get_logger()


class Engine:
    """Runs one term after the other: when the node is fenced, it drops what it holds and joins with a new id."""

    def __init__(
        self, store: Store, registry: Registry, bus: Bus, executor: Executor[Any], clock: Clock, events: EventHub,
        settings: EngineSettings,
        jitter: Callable[[], float] = random.random,
        random_bytes: Callable[[int], bytes] = os.urandom,
        vault: Vault | None = None,
        logs: LogStore | None = None,
        archive: AuditArchive | None = None,
        telemetry: Telemetry | None = None,
        certificates: Callable[[], Sequence[CertificateFact]] = tuple,
    ) -> None:  # fmt: skip
        hub = telemetry or Telemetry()
        self._around = Surroundings(
            store, registry, bus, executor,
            clock=clock if math.isinf(registry.ttl_seconds) else SteadyClock(clock),
            machine_clock=clock,
            events=events,
            jitter=jitter,
            random_bytes=random_bytes,
            vault=NoVault() if vault is None else vault,
            logs=logs,
            archive=archive,
            redaction=Redaction(),
            telemetry=hub,
            certificates=certificates,
            collected=Collected(hub, clock),
            troubles=TroubleNotes(hub),
            lag=LoopLag(lambda seconds: hub.emit(LoopLagged(seconds))),
        )  # fmt: skip
        self.feed = EventFeed(store)
        self._feeding = EventFeeding(self.feed, self.clock)
        self._event_log = EventLog(store, self.clock, events, self._feeding, random_bytes, bus.send)
        self._settings = settings
        self._prunes_from = -math.inf
        self.node = 0
        self.term: Term  # the current one, whole and loaded
        self._membership: Membership  # the newest: a stop gives up its shards, even if its term was not loaded
        self._fenced = asyncio.Event()  # the registry or the store has fenced this node
        self._watch: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None  # the lag of the event loop
        self._limit: StopLimit | None = None  # of the stop in progress

    async def start(self) -> None:
        """Joins the cluster and starts the services. They take over what an earlier process of this node left."""
        self._limit = None
        await self._around.executor.start()
        await self._begin()
        await self._around.bus.start(self._receive)
        for service in (self._event_log, self._feeding):
            await service.start(on_failed=self._turn_failed)
        self._watch = asyncio.create_task(self._rejoin_when_fenced())
        self._measuring = asyncio.create_task(self._around.lag.run())

    def _receive(self, hint: Hint) -> None:
        """Handles a hint from another node."""
        if hint.events:
            self._feeding.wake()
        self.term.receive(hint)

    def _turn_failed(self, service: str, error: str) -> None:
        self._around.telemetry.emit(TurnFailed(service, error))

    async def _begin(self) -> None:
        await self.join()
        await self.term.start()

    async def join(self) -> None:
        """Joins and creates the services, without starting their loops: tests run them step by step."""
        around, name = self._around, self._settings.node_name
        if self.node == 0 and not around.is_shared:
            await self._doubt_clock()
        self.node = await apply_one(around.store, StartNode(around.clock.now(), name))
        around.collected.node = around.collected.node or self.node
        self._fenced.clear()
        term = Term(around, self._settings, self.node, self._fenced.set, self._prunes_from)
        self._membership = term.membership
        await term.membership.run_once()
        if isinstance(around.clock, SteadyClock):
            around.clock.correct = term.membership.correct
        if self._fenced.is_set():
            raise StaleWrite(f"a newer node is named {name} too: give each its own NODE_NAME")
        await term.load()
        self.term = term
        around.events.publish_to_operator("node.joined", around.clock.now(), self._identity())

    def _identity(self) -> dict[str, object]:
        return {"node": self.node, "name": self._settings.node_name}

    async def _doubt_clock(self) -> None:
        """Compares the clock with the newest entry of the ledger: a single node has no other clock to compare with."""
        now, newest_at = self.clock.now(), await self._around.store.newest_at()
        if doubt := doubt_clock(newest_at, now):
            log.warning(doubt)
        if is_long_after(newest_at, now):
            self._prunes_from = self.clock.monotonic() + REST_IN_DOUBT_SECONDS

    async def _rejoin_when_fenced(self) -> None:
        """Rejoins as a new node each time that it is fenced. That is final: others own the shards and the claims."""
        steps = StopSteps(self._settings.stop_seconds, None)
        while True:
            await self._fenced.wait()
            log.warning("this node was fenced: it drops its claims and joins again", node=self.node)
            self._around.telemetry.emit(Fenced(self.node))
            await steps.run(self.term.wind_down(steps, 0))
            await self._membership.stop()
            while not await steps.run(self._begin()):  # noqa: ASYNC110 (no event says that the database is back)
                await asyncio.sleep(REJOIN_SECONDS)

    async def stop(self, limit: StopLimit | None = None) -> None:
        """Stops the timer and the other services, then drains. Claims that are not drained are released, not lost.

        A step that fails (a full disk, say) or takes too long (a database that does not respond) is logged, and the
        stop goes on. Executions that it could not write are taken over at the next start.
        """
        around, settings = self._around, self._settings
        self._limit = limit = limit or StopLimit(settings.drain_seconds + settings.stop_seconds)
        limit.begin()
        steps = StopSteps(settings.stop_seconds, limit)
        tasks = [task for task in (self._watch, self._measuring) if task is not None]
        for task in tasks:
            task.cancel()
        await steps.run(settled(tasks))
        term = self.term
        await steps.run(term.timer.stop())
        await steps.run(self._membership.retire())  # other nodes fire from now on; attempts here have time to end
        await term.wind_down(steps, settings.drain_seconds)
        around.events.publish_to_operator("node.left", self.clock.now(), self._identity())
        await steps.run(self._event_log.stop())  # with the ends of the last attempts
        await steps.run(self._feeding.stop())
        await steps.run(around.bus.stop())  # not before: it sends the hints for released executions
        await steps.run(around.executor.stop())
        await steps.run(around.store.apply([StopNode(self.clock.now(), self.node)]), LEAST_SECONDS)
        await steps.run(self._membership.leave())

    def stop_waiting(self) -> None:
        """Ends the drain and the other waits of a stop early."""
        self.term.dispatcher.stop_waiting()
        if self._limit is not None:
            self._limit.hurry()

    @property
    def clock(self) -> Clock:
        """Returns the clock for all times that are stored."""
        return self._around.clock

    def readings(self) -> EngineReadings:
        """Returns what the engine holds now."""
        return read_term(self.term)

    def watch_statistics(self, subjects: Iterable[tuple[str, str]]) -> None:
        """Keeps statistics of these (tenant, subject) of their own, and of no others; see domain/statistics.py."""
        self._around.collected.watch(subjects)

    def facts(self) -> NodeFacts:
        return self.term.facts()

    def health(self) -> dict[str, str]:
        """Returns for each service "healthy", or the failure of its last turn."""
        services = (*self.term.services, self._event_log, self._feeding)
        return {service.name: service.failure or "healthy" for service in services}
