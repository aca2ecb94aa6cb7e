"""A term: the parts of a node that belong to one lease. When the node is fenced, a new term replaces them all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import structlog

from duetime.domain.commands import Release
from duetime.domain.errors import TimedOut
from duetime.domain.execution import Claim
from duetime.domain.hint import Hint
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.lease import ALERTS, TIMER, runs_housekeeping
from duetime.domain.node_report import CertificateFact, NodeFacts, ending_soon
from duetime.engine.alerts import make_alerts
from duetime.engine.attempt_runner import AttemptRunner
from duetime.engine.audit_retention import AuditRetention
from duetime.engine.breaker import Breaker
from duetime.engine.claimer import Claimer
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.ledger_check import LedgerCheck
from duetime.engine.membership import Membership
from duetime.engine.node_reports import NodeReports
from duetime.engine.objectives import Objectives
from duetime.engine.on_finish import OnFinishCommands
from duetime.engine.ownership import Ownership
from duetime.engine.pages import Pages
from duetime.engine.reconciler import Reconciler
from duetime.engine.recorder import Recorder
from duetime.engine.redaction import Redaction
from duetime.engine.retention import Retention
from duetime.engine.service import Service
from duetime.engine.settings import WORKER, EngineSettings
from duetime.engine.signing import SigningStates
from duetime.engine.statistics import Collected, Statistics
from duetime.engine.stop_limit import LEAST_SECONDS, StopSteps, settled
from duetime.engine.stopper import Stopper
from duetime.engine.subscribers import Subscribers
from duetime.engine.timer import Timer
from duetime.engine.troubles import TroubleNotes
from duetime.engine.unanswered import Unanswered
from duetime.engine.watch import WorkerWatch
from duetime.engine.watched import WatchedSubjects
from duetime.engine.worker_gateway import WorkerGateway
from duetime.engine.write_probe import WriteProbe
from duetime.events import EventHub
from duetime.ports.archive import AuditArchive
from duetime.ports.bus import Bus
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor, always
from duetime.ports.logs import LogStore
from duetime.ports.registry import Registry
from duetime.ports.store import Store
from duetime.ports.vault import Vault
from duetime.process.loop_lag import LoopLag
from duetime.telemetry.emitted import QueueWaited, ShardsMoved, TurnFailed
from duetime.telemetry.hub import Telemetry

HINTED_AHEAD = 2 * SECOND  # no hint is sent for a job due later: the owner of its shard finds it without
RELEASE_PAGE = 2048
MOST_TIMEOUTS = 3  # of releases during a stop; after that, other nodes take the executions over

log = structlog.get_logger()


class Surroundings(msgspec.Struct, frozen=True):
    """What outlives a term. `clock`: for all times that are stored. `machine_clock`: for the lease."""

    store: Store
    registry: Registry
    bus: Bus
    executor: Executor[Any]
    clock: Clock
    machine_clock: Clock
    events: EventHub
    jitter: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    vault: Vault
    logs: LogStore | None
    archive: AuditArchive | None
    redaction: Redaction
    telemetry: Telemetry
    certificates: Callable[[], Sequence[CertificateFact]]
    collected: Collected
    troubles: TroubleNotes
    lag: LoopLag

    @property
    def is_shared(self) -> bool:
        """Returns whether other nodes may use the same store. If so, a lease can expire, and a node can be fenced."""
        return not math.isinf(self.registry.ttl_seconds)


class Term:
    """The constructor builds all parts, and gives each of them all that it needs. No part runs before that is done.

    Some parts need each other. Then the part that only notifies the other is built first, and gets a function that
    looks the other up when it is called: membership notifies the timer and the dispatcher, the recorder notifies the
    dispatcher, the worker gateway notifies the reconciler, and every part that makes work notifies the parts that do it
    (`due_hint`, `waiting_hint`).

    `on_fenced()`: the registry or the store has fenced this node. `retention_rests_until`: as in `Retention`.
    """

    def __init__(
        self, around: Surroundings, settings: EngineSettings, node: int, on_fenced: Callable[[], None],
        retention_rests_until: float,
    ) -> None:  # fmt: skip
        store, clock, roles = around.store, around.clock, settings.roles
        self._around = around
        self.node = node
        self.membership = membership = Membership(
            around.registry, around.machine_clock, node, settings.node_name, roles,
            writes=store.writes,
            on_gained=lambda shards: self._moved(gained=len(shards)),
            on_lost=lambda shards: self._moved(lost=len(shards)),
            on_fenced=on_fenced,
            on_trusted=lambda: self.dispatcher.resume(),
            on_released=lambda: around.bus.send(Hint(shards_free=True)),
        )  # fmt: skip
        is_trusted = membership.is_trusted if around.is_shared else always

        def does_housekeeping() -> bool:
            return runs_housekeeping(membership.owned)

        # Attempts, and their ends
        self.subscribers = Subscribers(store, clock, alone=not around.is_shared)
        self.signing = SigningStates(store, clock, alone=not around.is_shared)
        self.breaker = Breaker(store, clock, around.events, settings.breaker, shared=around.is_shared)
        on_finish = OnFinishCommands(
            around.events, around.random_bytes, settings.notifications,
            around.telemetry, subscriptions=self.subscribers.of, due_hint=self.due_hint,
        )  # fmt: skip
        self.recorder = Recorder(
            store, clock, node, around.events, on_finish, self.breaker, around.telemetry,
            recorded=lambda claims: self.dispatcher.recorded(claims),
            is_busy=lambda: self.dispatcher.running() > 0,
            waiting_hint=self.own_waiting_hint,
        )  # fmt: skip
        cancelled: set[str] = set()
        runner = AttemptRunner(
            around.executor, self.recorder, clock, around.jitter, cancelled, is_trusted, around.vault, around.logs,
            self.breaker, around.redaction,
        )  # fmt: skip
        limits = settings.limits if WORKER in roles else msgspec.structs.replace(settings.limits, capacity=0)
        self.dispatcher = Dispatcher(
            limits, runner.attempt, runner.drop, cancelled, is_held=self.breaker.holds, is_trusted=is_trusted,
            on_wait=lambda seconds: around.telemetry.emit(QueueWaited(seconds)),
        )  # fmt: skip

        # What makes and claims executions
        unanswered = Unanswered(clock.monotonic)
        ownership = Ownership(store, clock, node, membership.owned_now, fenced=around.is_shared)
        self.timer = Timer(
            store, clock, node, self.dispatcher, around.random_bytes, ownership, unanswered, self.waiting_hint,
            around.events,
        )  # fmt: skip
        self.claimer = Claimer(
            store, clock, node, self.dispatcher, unanswered, around.events, membership.is_clock_right
        )
        self.stopper = Stopper(store, clock, node, self.dispatcher)
        self.ledger_check = LedgerCheck(
            store, clock, node, self.dispatcher, self.recorder, unanswered,
            lambda: [claim.execution_id for claim in self.claimer.releasing],
        )  # fmt: skip

        # Workers, and the executions of expired nodes and workers
        self.worker_gateway = WorkerGateway(
            store, clock, self.recorder, around.vault, around.logs, settings.worker_lease_seconds, around.jitter,
            around.redaction, settings.workers,
            taken_over=lambda: self.reconciler.look_now(),
            waiting_hint=self.own_waiting_hint,
            is_clock_right=membership.is_clock_right,
            events=around.events,
        )  # fmt: skip
        self.watch = WorkerWatch(store, clock, settings.worker_lease_seconds, does_housekeeping)
        self.reconciler = Reconciler(
            store, clock, node, settings.reconcile_interval_seconds, settings.reconcile_batch, does_housekeeping,
            membership.expired, on_finish, around.telemetry,
            silent_workers=self.watch.silent,
            on_fenced=self.worker_gateway.workers.forget,
            waiting_hint=self.waiting_hint,
            is_clock_right=membership.is_clock_right,
            events=around.events,
        )  # fmt: skip
        self.write_probe = WriteProbe(store, clock, node, membership.wake)

        # Without an archive to export it to, the audit is kept forever.
        audit = None
        if around.archive is not None and settings.audit_seconds:
            audit = AuditRetention(store, around.archive, settings.audit_seconds)
        self.retention = Retention(
            store, clock, settings.history_seconds, settings.history_most, does_housekeeping, around.logs,
            settings.logs_most_bytes, audit, around.events,
            is_clock_right=membership.is_clock_right,
            rests_until=retention_rests_until,
        )  # fmt: skip
        self.statistics = Statistics(
            store, clock, around.collected, does_housekeeping, membership.is_clock_right, alone=not around.is_shared
        )
        self.node_reports = NodeReports(store, clock, node, self.facts)
        self._settings = settings
        self._began_at = clock.now()
        self.watched = WatchedSubjects(store, clock, around.collected)
        self.objectives = Objectives(store, clock, around.telemetry, does_housekeeping)
        self.alerts, self.burns = make_alerts(
            store, clock, node, settings, around.events, around.random_bytes, around.telemetry,
            view=lambda: membership.view,
            own=self.facts,
            is_trusted=is_trusted,
            due_hint=self.due_hint,
        )  # fmt: skip
        self.services = self._list_services(roles)

    def _list_services(self, roles: Collection[str]) -> list[Service]:
        is_shared = self._around.is_shared
        services: list[Service] = [self.membership, self.subscribers, self.signing]
        services += [self.recorder, self.watch, self.reconciler, self.statistics, self.watched]
        services += [self.breaker] if self.breaker.is_on else []
        services += [self.claimer, self.ledger_check] if WORKER in roles else []
        services += [self.stopper] if WORKER in roles and is_shared else []
        services += [self.write_probe, self.node_reports] if is_shared else []
        services += [self.timer, self.retention, self.objectives] if TIMER in roles else []
        services += [self.alerts, self.burns] if ALERTS in roles else []
        return services

    async def load(self) -> None:
        """Reads what must be known before the first execution of this term ends, and before its first request."""
        await self.subscribers.run_once()
        await self.signing.run_once()
        await self.breaker.load()

    async def start(self) -> None:
        # A node that is alone is fenced only by another process on the same files: then it must not join again.
        on_fenced = self.membership.lose if self._around.is_shared else None
        for service in self.services:
            await service.start(on_fenced, self._turn_failed)

    def _moved(self, gained: int = 0, lost: int = 0) -> None:
        self.timer.wake()
        owned = len(self.membership.owned)
        self._around.telemetry.emit(ShardsMoved(gained, lost, owned))
        if self._around.is_shared:  # a node that is alone owns all shards
            moved: dict[str, object] = {"node": self.node, "gained": gained, "lost": lost, "owned": owned}
            self._around.events.publish_to_operator("shards.moved", self._around.clock.now(), moved)

    def _turn_failed(self, service: str, error: str) -> None:
        self._around.telemetry.emit(TurnFailed(service, error))

    async def wind_down(self, steps: StopSteps, drain_seconds: float) -> None:
        """Stops the services except membership, drains, and releases the claims that were not drained."""
        self.worker_gateway.polls.close()
        own = (
            self.timer, self.watch, self.reconciler, self.claimer, self.stopper, self.retention, self.subscribers,
            self.ledger_check, self.write_probe, self.node_reports, self.objectives, self.watched,
            self.alerts, self.burns,
        )  # fmt: skip
        await steps.run(settled([service.stop() for service in own]))
        never_started, slots = await self.dispatcher.drain(steps.time_to_drain(drain_seconds))
        never_started += self.claimer.releasing
        for slot in slots:
            slot.cancel()
        await steps.run(settled(slots))
        if never_started and await steps.run(self._give_back(never_started), LEAST_SECONDS):
            log.warning("claims were released unstarted", count=len(never_started))
        await steps.run(self.recorder.stop(), LEAST_SECONDS)
        await steps.run(self.breaker.stop())
        await steps.run(self.statistics.stop())

    async def _give_back(self, claims: Collection[Claim]) -> None:
        """Releases claims, as of now or `scheduled_at` if later: the clock may have been set back since the claim."""
        now, pages, timeouts = self._around.clock.now(), Pages(RELEASE_PAGE), 0
        left = sorted(claims, key=lambda claim: max(now, claim.scheduled_at))
        while left:
            page = left[: pages.size]
            by_instant = defaultdict[int, list[Claim]](list)
            for claim in page:
                by_instant[max(now, claim.scheduled_at)].append(claim)
            releases = [Release(self.node, at, tuple(some)) for at, some in by_instant.items()]
            try:
                with pages.writing(len(page)):
                    await self._around.store.apply(releases)
            except TimedOut:
                timeouts += 1
                if timeouts > MOST_TIMEOUTS:
                    raise
                continue
            left = left[len(page) :]
            self._around.bus.send(Hint(waiting_at=min(by_instant)))

    def facts(self) -> NodeFacts:
        """Returns what this node tells the others about itself."""
        membership, settings = self.membership, self._settings
        return NodeFacts(
            name=settings.node_name,
            version=settings.version,
            roles=tuple(sorted(settings.roles)),
            started_at=self._began_at,
            standing=membership.standing,
            shards=len(membership.owned),
            loop_lag_ms=round(1000 * self._around.lag.seconds, 1),
            clock_offset_ms=membership.clock_offset,
            in_flight=self.dispatcher.running(),
            limit=settings.limits.concurrency,
            queued=self.dispatcher.waiting(),
            due_buffer=self.timer.read_ahead(),
            unwritten=self.recorder.unwritten(),
            failing=tuple(service.name for service in self.services if service.failure),
            troubles=self._around.troubles.worst(self._around.clock.now()),
            certificates=ending_soon(self._around.certificates(), self._around.clock.now()),
            places=self.dispatcher.place_uses(),
        )

    # Hints: from the parts of this term, from the API and from other nodes

    def due_hint(self, due_at: int) -> None:
        """Notifies the timer that owns the job, on this or another node, that the job is due at `due_at`."""
        self.timer.hint(due_at)
        if due_at <= self._around.clock.now() + HINTED_AHEAD:
            self._around.bus.send(Hint(due_at=due_at, due_until=due_at))

    def waiting_hint(self, due_at: int) -> None:
        """Notifies all nodes that an execution can be claimed from `due_at` on."""
        self.own_waiting_hint(due_at)
        self._around.bus.send(Hint(waiting_at=due_at))

    def own_waiting_hint(self, due_at: int) -> None:
        """Notes on this node that an execution can be claimed from `due_at` on, by itself or by a worker."""
        self.claimer.hint(due_at)
        self.worker_gateway.polls.hint()

    def cancel(self, execution_id: str) -> bool:
        """Cancels an execution. Returns False if this node does not hold it, and sends a hint to the other nodes."""
        if self.dispatcher.cancel(execution_id):
            return True
        self._around.bus.send(Hint(cancel=(execution_id,)))
        return False

    def receive(self, hint: Hint) -> None:
        """Handles a hint from another node."""
        if hint.due_until:
            self.timer.hint(hint.due_at)
            self.timer.hint(hint.due_until)
        if hint.waiting_at != LATEST:
            self.own_waiting_hint(hint.waiting_at)
        if hint.shards_free:
            self.membership.wake()
        for execution_id in hint.cancel:
            self.dispatcher.cancel(execution_id)
