"""The engine: creates the services of a node, starts them in order, and stops them in an order that loses nothing."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

import msgspec
import structlog

from duetime.domain.breaker import Rules
from duetime.domain.commands import Release, StartNode, StopNode
from duetime.domain.errors import DuetimeError, StaleWrite, TimedOut
from duetime.domain.execution import Run
from duetime.domain.hint import Hint
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.lease import TIMER, doubt_clock, is_long_after, runs_housekeeping
from duetime.domain.limits import Limit
from duetime.domain.worker_limits import WorkerLimits
from duetime.engine.attempt_runner import AttemptRunner
from duetime.engine.audit_retention import AuditRetention
from duetime.engine.breaker import Breaker
from duetime.engine.claimer import Claimer
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.engine.ledger_check import LedgerCheck
from duetime.engine.membership import Membership
from duetime.engine.on_finish import OnFinishCommands
from duetime.engine.ownership import Ownership
from duetime.engine.pages import Pages
from duetime.engine.reconciler import Reconciler
from duetime.engine.recorder import Recorder
from duetime.engine.redaction import Redaction
from duetime.engine.retention import Retention
from duetime.engine.service import Service
from duetime.engine.signing import SigningStates
from duetime.engine.steady import SteadyClock
from duetime.engine.stop_limit import StopLimit
from duetime.engine.stopper import Stopper
from duetime.engine.subscribers import Subscribers
from duetime.engine.timer import Timer
from duetime.engine.unanswered import Unanswered
from duetime.engine.watch import WorkerWatch
from duetime.engine.worker_gateway import WorkerGateway
from duetime.engine.write_probe import WriteProbe
from duetime.events import EventHub
from duetime.ports.archive import AuditArchive
from duetime.ports.bus import Bus
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor
from duetime.ports.logs import LogStore
from duetime.ports.registry import Registry
from duetime.ports.store import Store
from duetime.ports.vault import NoVault, Vault
from duetime.settings.table import DEFAULTS

WORKER = "worker"
REJOIN_SECONDS = 1.0
REST_IN_DOUBT_SECONDS = 3600.0  # retention pauses this long after a start if the newest entry of the ledger is old
LEAST_SECONDS = 0.25  # for the steps that write what this node ran and did not run, even if no time is left
STEP_SHARE = 0.5  # of `stop_seconds`: the most that one step of a stop may take
HINTED_AHEAD = 2 * SECOND  # no hint is sent for a job due later: the owner of its shard finds it without
RELEASE_PAGE = 2048
MOST_TIMEOUTS = 3  # of releases during a stop; after that, other nodes take the executions over

log = structlog.get_logger()


class EngineSettings(msgspec.Struct, frozen=True):
    node_name: str = "node-1"
    roles: frozenset[str] = frozenset({TIMER, WORKER})
    limits: Limits = Limits()
    drain_seconds: float = DEFAULTS.dispatcher_drain_timeout
    stop_seconds: float = DEFAULTS.http_shutdown_timeout  # the time for a stop, in addition to the drain
    reconcile_interval_seconds: float = DEFAULTS.reconcile_interval
    reconcile_batch: int = DEFAULTS.reconcile_batch_size
    history_seconds: float = DEFAULTS.execution_history_retention
    history_most: int = DEFAULTS.execution_history_limit
    logs_most_bytes: int = DEFAULTS.logs_total_limit
    audit_seconds: float = 0.0  # 0: kept forever
    worker_lease_seconds: float = DEFAULTS.worker_lease_seconds
    workers: WorkerLimits = WorkerLimits(DEFAULTS.tenant_workers_limit)  # per tenant
    breaker: Rules = Rules(DEFAULTS.circuit_breaker_threshold, int(DEFAULTS.circuit_breaker_cooldown * SECOND))
    notifications: Limit | None = None  # per tenant


class Engine:
    """Runs one term after the other: when the lease is lost, the node drops what it holds and joins with a new id."""

    def __init__(
        self, store: Store, registry: Registry, bus: Bus, executor: Executor[Any], clock: Clock, events: EventHub,
        settings: EngineSettings,
        jitter: Callable[[], float] = random.random,
        random_bytes: Callable[[int], bytes] = os.urandom,
        vault: Vault | None = None,
        logs: LogStore | None = None,
        archive: AuditArchive | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._registry = registry
        self._bus = bus
        self._executor = executor
        self._machine_clock = clock
        self._clock = clock if math.isinf(registry.ttl_seconds) else SteadyClock(clock)
        self._events = events
        self._settings = settings
        self._jitter = jitter
        self._random_bytes = random_bytes
        self._vault: Vault = NoVault() if vault is None else vault
        self._logs = logs
        self._redaction = Redaction()
        self._prunes_from = -math.inf
        self._archive = archive
        self.notification_refused: Callable[[DuetimeError], None] = lambda error: None
        self.services: list[Service] = []
        self.node = 0
        self._lost = asyncio.Event()  # the lease of this term is lost
        self._watch: asyncio.Task[None] | None = None
        self._limit: StopLimit | None = None  # of the stop in progress

    async def start(self) -> None:
        """Joins the cluster and starts the services. They take over what an earlier process of this node left."""
        self._limit = None
        await self._executor.start()
        await self._begin()
        await self._bus.start(self._hear)
        self._watch = asyncio.create_task(self._begin_anew_when_lost())

    async def _begin(self) -> None:
        await self.join()
        for service in self.services:
            await service.start()

    async def join(self) -> None:
        """Joins and creates the services, without starting their loops: tests run them step by step."""
        settings, roles = self._settings, self._settings.roles
        if self.node == 0 and math.isinf(self._registry.ttl_seconds):
            await self._doubt_clock()
        (node,) = await self._store.apply([StartNode(self._clock.now(), settings.node_name)])
        self.node = int(node)
        self._lost.clear()
        self.membership = Membership(self._registry, self._machine_clock, self.node, settings.node_name, roles)
        self.membership.on_ended = self._lost.set
        self.membership.writes = self._store.writes
        self.membership.on_released = lambda: self._bus.send(Hint(shards_free=True))
        await self.membership.run_once()
        if isinstance(self._clock, SteadyClock):
            self._clock.correct = self.membership.correct
        if self._lost.is_set():
            raise StaleWrite(f"a newer node is named {settings.node_name} too: give each its own NODE_NAME")
        fenced = not math.isinf(self._registry.ttl_seconds)
        subscribers = Subscribers(self._store, self._clock, alone=not fenced)
        await subscribers.run_once()  # before the first execution of this term ends: its notification can't come later
        self.subscribers = subscribers
        signing = SigningStates(self._store, self._clock, alone=not fenced)
        await signing.run_once()  # before the first request of this term is signed
        self.signing = signing
        on_finish = OnFinishCommands(self._events, self._random_bytes, settings.notifications)
        on_finish.refused = self.notification_refused
        on_finish.subscriptions = self.subscribers.of
        on_finish.due_hint = self.due_hint
        recorder = Recorder(self._store, self._clock, self.node, self._events, on_finish)
        limits = settings.limits if WORKER in roles else msgspec.structs.replace(settings.limits, capacity=0)
        self.dispatcher = Dispatcher(limits, lambda run: runner.attempt(run), lambda run: runner.drop(run))
        if fenced:
            self.dispatcher.is_trusted = self.membership.is_trusted
        self.breaker = Breaker(self._store, self._clock, self._events, settings.breaker, shared=fenced)
        await self.breaker.load()
        self.dispatcher.is_held = self.breaker.holds
        runner = AttemptRunner(
            self._executor, recorder, self._clock, self._jitter, lambda id: id in self.dispatcher.cancelled,
            self.dispatcher.is_trusted, self._vault, self._logs, self.breaker, self._redaction,
        )  # fmt: skip
        ownership = Ownership(self._store, self._clock, self.node, self.membership.owned_now, fenced=fenced)
        unanswered = Unanswered(self._clock.monotonic)
        self.timer = Timer(
            self._store, self._clock, self.node, self.dispatcher, self._random_bytes, ownership, unanswered
        )
        self.claimer = Claimer(self._store, self._clock, self.node, self.dispatcher, unanswered)
        self.stopper = Stopper(self._store, self._clock, self.node, self.dispatcher)
        self.recorder = recorder
        self.ledger_check = LedgerCheck(
            self._store, self._clock, self.node, self.dispatcher, recorder, unanswered,
            lambda: [run.execution_id for run in self.claimer.releasing],
        )  # fmt: skip
        self.watch = WorkerWatch(self._store, self._clock, settings.worker_lease_seconds, self._runs_housekeeping)
        self.reconciler = Reconciler(
            self._store, self._clock, self.node, settings.reconcile_interval_seconds, settings.reconcile_batch,
            self._runs_housekeeping, self.membership.gone, on_finish,
        )  # fmt: skip
        self.reconciler.waiting_hint = self.waiting_hint
        self.reconciler.silent_workers = self.watch.silent
        self.worker_gateway = WorkerGateway(
            self._store, self._clock, recorder, self._vault, self._logs, settings.worker_lease_seconds, self._jitter,
            self.reconciler.look_now, self._redaction, settings.workers,
        )  # fmt: skip
        self.reconciler.on_ended = self.worker_gateway.forget
        self.worker_gateway.is_clock_right = self.membership.is_clock_right
        self.reconciler.is_clock_right = self.claimer.is_clock_right = self.membership.is_clock_right
        self.retention = Retention(
            self._store, self._clock, settings.history_seconds, settings.history_most, self._runs_housekeeping,
            self._logs, settings.logs_most_bytes, self._audit_retention(),
        )  # fmt: skip
        self.retention.is_clock_right = self.membership.is_clock_right
        self.retention.rests_until = self._prunes_from
        recorder.breaker = self.breaker
        recorder.recorded = self.dispatcher.recorded
        recorder.is_busy = lambda: self.dispatcher.running() > 0
        recorder.waiting_hint = self._hint_own
        self.dispatcher.waiting_hint = self.waiting_hint
        self.membership.on_trusted = self.dispatcher.resume
        self.membership.on_gained = lambda shards: self.timer.wake()
        self.membership.on_lost = lambda shards: self.timer.wake()
        self.services = [self.membership, self.subscribers, self.signing, recorder, self.watch, self.reconciler]
        self.services += [self.breaker] if self.breaker.is_on else []
        self.services += [self.claimer, self.ledger_check] if WORKER in roles else []
        self.services += [self.stopper] if WORKER in roles and fenced else []
        self.write_probe = WriteProbe(self._store, self._clock, self.node, self.membership.wake)
        self.services += [self.write_probe] if fenced else []
        self.services += [self.timer, self.retention] if TIMER in roles else []
        if fenced:  # else this node is alone, and a node that replaced it is another process on the same files
            for service in self.services:
                service.on_void = self.membership.lose

    async def _doubt_clock(self) -> None:
        """Compares the clock with the newest entry of the ledger: a single node has no other clock to compare with."""
        now, newest_at = self._clock.now(), await self._store.newest_at()
        if doubt := doubt_clock(newest_at, now):
            log.warning(doubt)
        if is_long_after(newest_at, now):
            self._prunes_from = self._clock.monotonic() + REST_IN_DOUBT_SECONDS

    def _audit_retention(self) -> AuditRetention | None:
        """Returns None if the audit is kept forever. It is also kept forever if there is no archive to export it to."""
        if self._archive is None or not self._settings.audit_seconds:
            return None
        return AuditRetention(self._store, self._archive, self._settings.audit_seconds)

    def _runs_housekeeping(self) -> bool:
        return runs_housekeeping(self.membership.owned)

    async def _begin_anew_when_lost(self) -> None:
        """Rejoins as a new node after each lost lease. A lost lease is final: others own the shards and the claims."""
        while True:
            await self._lost.wait()
            log.warning("the lease was lost: dropping what was held, and joining anew", node=self.node)
            await self._try(self._wind_down(0))
            await self.membership.stop()
            while not await self._try(self._begin()):  # noqa: ASYNC110 (no event says that the database is back)
                await asyncio.sleep(REJOIN_SECONDS)

    async def stop(self, limit: StopLimit | None = None) -> None:
        """Stops the timer and the other services, then drains. Claims that are not drained are released, not lost.

        A step that fails (a full disk, say) or takes too long (a database that does not respond) is logged, and the
        stop goes on. Executions that it could not write are taken over at the next start.
        """
        settings = self._settings
        self._limit = limit = limit or StopLimit(settings.drain_seconds + settings.stop_seconds)
        limit.begin()
        if self._watch is not None:
            self._watch.cancel()
            await self._step(_settled([self._watch]))
        await self._step(self.timer.stop())
        await self._step(self.membership.retire())  # other nodes fire from now on; attempts here have time to end
        await self._wind_down(settings.drain_seconds)
        await self._step(self._bus.stop())  # not before: it sends the hints for released executions
        await self._step(self._executor.stop())
        await self._step(self._store.apply([StopNode(self._clock.now(), self.node)]), LEAST_SECONDS)
        await self._step(self.membership.leave())

    async def _wind_down(self, drain_seconds: float) -> None:
        self.worker_gateway.close()
        own = (
            self.timer, self.watch, self.reconciler, self.claimer, self.stopper, self.retention, self.subscribers,
            self.ledger_check, self.write_probe,
        )  # fmt: skip
        await self._step(_settled([service.stop() for service in own]))
        never_started, slots = await self.dispatcher.drain(self._time_to_drain(drain_seconds))
        never_started += self.claimer.releasing
        for slot in slots:
            slot.cancel()
        await self._step(_settled(slots))
        if never_started and await self._step(self._give_back(never_started), LEAST_SECONDS):
            log.warning("runs were given back unstarted", count=len(never_started))
        await self._step(self.recorder.stop(), LEAST_SECONDS)
        await self._step(self.breaker.stop())

    def _time_to_drain(self, wanted: float) -> float:
        """Returns the time left for the drain. One step's time is kept back to release claims that were not drained."""
        if self._limit is None:
            return wanted
        return max(0.0, min(wanted, self._limit.left() - self._settings.stop_seconds * STEP_SHARE))

    async def _step(self, step: Coroutine[Any, Any, object], at_least: float = 0.0) -> bool:
        """Runs a step of a stop within its limit. (Rejoining has no limit: a node can't go on without its database.)"""
        if self._limit is None:
            return await self._try(step)
        name = getattr(step, "__qualname__", "")
        return await self._try(self._limit.within(step, self._settings.stop_seconds * STEP_SHARE, at_least), name)

    async def _give_back(self, runs: Collection[Run]) -> None:
        """Releases claims, as of now or `scheduled_at` if later: the clock may have been set back since the claim."""
        now, pages, timeouts = self._clock.now(), Pages(RELEASE_PAGE), 0
        left = sorted(runs, key=lambda run: max(now, run.scheduled_at))
        while left:
            page = left[: pages.size]
            by_instant = defaultdict[int, list[Run]](list)
            for run in page:
                by_instant[max(now, run.scheduled_at)].append(run)
            try:
                with pages.writing(len(page)):
                    await self._store.apply([Release(self.node, at, tuple(some)) for at, some in by_instant.items()])
            except TimedOut:
                timeouts += 1
                if timeouts > MOST_TIMEOUTS:
                    raise
                continue
            left = left[len(page) :]
            self._bus.send(Hint(waiting_at=min(by_instant)))

    async def _try(self, step: Coroutine[Any, Any, object], name: str = "") -> bool:
        try:
            await step
        except Exception as error:  # noqa: BLE001 (the steps that follow matter more)
            name = name or getattr(step, "__qualname__", "")
            log.error("a step failed", step=name, error=f"{type(error).__name__}: {error}")
            return False
        return True

    @property
    def clock(self) -> Clock:
        """Returns the clock for all times that are stored."""
        return self._clock

    # Calls from the API and from other nodes, for the services of the current term

    def due_hint(self, due_at: int) -> None:
        """Tells the timer that owns the job, on this or another node, that the job is due at `due_at`."""
        self.timer.hint(due_at)
        if due_at <= self._clock.now() + HINTED_AHEAD:
            self._bus.send(Hint(due_at=due_at, due_until=due_at))

    def waiting_hint(self, due_at: int) -> None:
        """Tells all nodes that an execution can be claimed from `due_at` on."""
        self._hint_own(due_at)
        self._bus.send(Hint(waiting_at=due_at))

    def _hint_own(self, due_at: int) -> None:
        self.claimer.hint(due_at)
        self.worker_gateway.hint()

    def circuits_hint(self) -> None:
        """Wakes the breaker after a circuit was closed through the API."""
        self.breaker.wake()

    def cancel(self, execution_id: str) -> bool:
        """Cancels an execution. Returns False if this node does not hold it, and sends a hint to the other nodes."""
        if self.dispatcher.cancel(execution_id):
            return True
        self._bus.send(Hint(cancel=(execution_id,)))
        return False

    def _hear(self, hint: Hint) -> None:
        """Handles a hint from another node."""
        if hint.due_until:
            self.timer.hint(hint.due_at)
            self.timer.hint(hint.due_until)
        if hint.waiting_at != LATEST:
            self._hint_own(hint.waiting_at)
        if hint.shards_free:
            self.membership.wake()
        for execution_id in hint.cancel:
            self.dispatcher.cancel(execution_id)

    def stop_waiting(self) -> None:
        """Ends the drain and the other waits of a stop early."""
        self.dispatcher.stop_waiting()
        if self._limit is not None:
            self._limit.hurry()

    def health(self) -> dict[str, str]:
        """Returns for each service "healthy", or the failure of its last turn."""
        return {service.name: service.failure or "healthy" for service in self.services}


async def _settled(parts: Collection[Awaitable[object]]) -> None:
    """Waits until all have ended, then raises the first failure, if any."""
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
