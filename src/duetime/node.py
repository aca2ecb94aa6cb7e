"""A node: one process with its parts, which its settings choose."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from litestar.types import ASGIApp

from duetime.api.app import create_app, create_health_app
from duetime.api.auth.keyring import Keyring
from duetime.api.context import ApiContext, ApiLimits, ClusterState, EngineLink
from duetime.api.gate import Gate
from duetime.api.http.held_bodies import HeldBodies
from duetime.api.limiter import Limiter
from duetime.api.metrics import create_metrics_app
from duetime.api.random_ids import request_ids, rising
from duetime.api.readings import Reader, Sources
from duetime.api.streams import Streams
from duetime.assembly import (
    make_capacity,
    make_creation_rules,
    make_direct_sender,
    make_engine_settings,
    make_executors,
    make_storage,
    make_tier_limits,
    make_tokens,
    make_traces,
    operator_of,
)
from duetime.audit_files import AuditFolder
from duetime.domain.direct_alerts import node_leaving
from duetime.domain.errors import Overloaded
from duetime.domain.grants import KeyLimits
from duetime.domain.lease import ClockState, explain_clock
from duetime.domain.node_report import CertificateFact
from duetime.domain.secrets import channel_place, connection_place
from duetime.engine.direct_alerts import DirectAlerts
from duetime.engine.engine import Engine
from duetime.engine.heartbeat import Heartbeat
from duetime.engine.stop_limit import StopLimit
from duetime.engine.store_watch import StoreWatch
from duetime.events import EventHub
from duetime.executors.by_type import ByType
from duetime.executors.certificates import Certificates
from duetime.executors.headers import signing_keys
from duetime.executors.notice.executor import Channel
from duetime.logs import open_logs
from duetime.private_files import advice_for, list_wide
from duetime.process.clock import SystemClock
from duetime.process.collector import Collector
from duetime.process.collector_pauses import CollectorPauses
from duetime.process.tuning import tune_the_interpreter
from duetime.process.watchdog import GRACE_SECONDS, Watchdog
from duetime.serving import HttpServers
from duetime.settings.table import Settings
from duetime.telemetry.emitted import Committed, GarbageCollected, LoopLagged
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.lifecycle import Lifecycle, later
from duetime.telemetry.limited_lines import LimitedLines
from duetime.telemetry.measured_store import measured
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.telemetry.request_log import RequestLog
from duetime.vault.aes import open_vault
from duetime.vault.signing import TenantKeys

log = structlog.get_logger()

LAST_NOTICES_SECONDS = 3.0  # for notices to the operator at a stop
CLOSE_SECONDS = 0.5  # for each of logs, registry and store to close, even if a stop has used up its time


class Node:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._servers = HttpServers(settings)
        self._clock = SystemClock()
        self._events = EventHub(operator_of(settings) or None)
        self._capacity = make_capacity(settings)
        self._telemetry = Telemetry()
        store, self._registry, bus = make_storage(settings, self._capacity)
        self._store = measured(store, self._telemetry)
        self._pauses = CollectorPauses(
            lambda generation, seconds: self._telemetry.emit(GarbageCollected(generation, seconds))
        )
        self._telemetry.subscribe(LoopLagged, lambda _: self._pauses.drain())
        store.on_commit(lambda commands, seconds: self._telemetry.emit(Committed(commands, seconds)))
        self._vault = open_vault(settings.encryption_keys, None if settings.database_url else settings.data)
        self._tiers = make_tier_limits(settings)
        self._metrics = Metrics(self._telemetry)
        self._tokens = make_tokens(settings)
        self._logs = open_logs(settings.logs_url, settings.data / "logs", settings.log_size_limit, self._clock)
        self._signing = TenantKeys(signing_keys(settings.signing_secrets), shared=settings.sign_with_shared_key)
        sampling, self._spans = make_traces(settings, self._telemetry)
        self._lines = LimitedLines(later)
        Lifecycle(self._telemetry, settings.log_level, self._lines, sampling)
        RequestLog(self._telemetry, settings.log_level, self._lines)
        webhooks, executors = make_executors(
            settings, self._find_connection, self._find_channel, self._keys_of, sampling
        )
        self.certificates = Certificates(webhooks.resolve)
        webhooks.called = self.certificates.called
        self._rules = make_creation_rules(settings, webhooks)
        engine_settings = make_engine_settings(settings, self._tiers, self._capacity)
        self._limit = StopLimit(engine_settings.drain_seconds + engine_settings.stop_seconds)
        self._watchdog = Watchdog()
        self._engine = Engine(
            store=self._store,
            registry=self._registry,
            bus=bus,
            executor=ByType(executors),
            clock=self._clock,
            events=self._events,
            settings=engine_settings,
            vault=self._vault,
            logs=self._logs,
            archive=AuditFolder(settings.audit_export_folder or settings.data / "audit"),
            telemetry=self._telemetry,
            certificates=self._list_certificates,
        )
        self._keyring = Keyring(self._store, self._engine.clock)
        self._limiter = Limiter(self._store, self._engine.clock, self._tiers)
        self._bodies = HeldBodies()
        self._is_stopping = False
        self._direct_sender = make_direct_sender(settings, self._keys_of, self._clock.now)
        self.direct_alerts = DirectAlerts(self._direct_sender, self._clock, os.urandom)
        self._store_watch = StoreWatch(
            self._store.check, self._clock, settings.node_name, settings.alert_database_after, self.direct_alerts.tell
        )
        self._heartbeat = Heartbeat(
            lambda: self._direct_sender.beat(settings.heartbeat_url), self._trouble, self._clock,
            settings.heartbeat_interval,
        )  # fmt: skip

    def _list_certificates(self) -> list[CertificateFact]:
        return [CertificateFact(*it) for it in self.certificates.certificates()]

    def _keys_of(self, tenant: str) -> tuple[bytes, ...]:
        """Returns the keys that sign a request of this tenant now."""
        if not self._signing.can_sign:
            return ()
        return self._signing.sign_with(tenant, self._engine.term.signing.versions(tenant))

    async def _find_connection(self, tenant: str, name: str) -> str | None:
        """Returns the decrypted URL of a connection."""
        record = await self._store.get_connection(tenant, name)
        return None if record is None else self._vault.decrypt(tenant, connection_place(name), record.url)

    async def _find_channel(self, tenant: str, name: str) -> Channel | None:
        """Returns an alert channel with its URL decrypted."""
        record = await self._store.get_channel(tenant, name)
        if record is None:
            return None
        return Channel(record.kind, self._vault.decrypt(tenant, channel_place(name), record.url))

    def _trouble(self) -> str | None:
        """Returns why this node does not work; None if it does."""
        if self._store_watch.trouble is not None:
            return f"database: {self._store_watch.trouble}"
        refusal = self._refusal()
        if refusal is not None:
            return refusal.message
        failures = (f"{name}: {state}" for name, state in self._engine.health().items() if state != "healthy")
        return next(failures, None)

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Runs until SIGINT or SIGTERM, then stops in an order that loses nothing. A second signal ends it at once.

        The process ends within the time limit of a stop, even if a part hangs.
        """
        tune_the_interpreter()
        # The port first: a node that can't be reached should not run jobs either.
        with self._servers.listen() as listener:
            asked = self._watch_signals()  # before anything runs that must be drained
            async with self.running() as context:
                collecting = asyncio.create_task(Collector(lambda: self._engine.term.timer.quiet_for()).run())
                self._pauses.start()
                await self._serve_api(context, listener, ready, asked)
                self._pauses.stop()
                collecting.cancel()
        log.info("stopped")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ApiContext]:
        """Runs jobs without a port, for callers in this process. The API, if there is one, is closed last."""
        await self._store.start()
        if self._spans is not None:
            self._spans.start()
        try:
            self._vault.start()
            if not self._vault.can_encrypt:
                log.warning(
                    "there are no ENCRYPTION_KEYS: new jobs with header values or other secrets are refused, "
                    "and executions of those that exist fail"
                )
            await self._registry.start()
            await self._logs.start()
            if wide := list_wide(self._settings.data):
                log.warning("users other than the owner have access to the data folder", advice=advice_for(wide))
            await self._engine.start()
            await self._start_watching()
            try:
                yield self._context()
            finally:
                await self._close(self._heartbeat.stop())
                self.direct_alerts.tell(node_leaving(self._settings.node_name))
                await self._engine.stop(self._limit)
                await self._close(self._stop_watching())
                await self._close(self._close_api())
        finally:
            await self._close(self._logs.stop())
            await self._close(self._registry.stop())
            await self._close(self._store.stop())
            self._lines.close()
            if self._spans is not None:
                await self._close(self._spans.stop())

    async def _start_watching(self) -> None:
        self.certificates.start()
        for problem in self._direct_sender.list_problems():
            log.warning(problem)
        if self.direct_alerts.is_on or self._settings.heartbeat_url:
            await self._store_watch.start()
        if self._settings.heartbeat_url:
            await self._heartbeat.start()

    async def _stop_watching(self) -> None:
        await self._store_watch.stop()
        await self.certificates.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_NOTICES_SECONDS):
                await self.direct_alerts.settle()
        await self.direct_alerts.stop()
        await self._direct_sender.stop()

    async def _close(self, step: Coroutine[Any, Any, None]) -> None:
        name = getattr(step, "__qualname__", "")
        try:
            await self._limit.within(step, self._limit.seconds, CLOSE_SECONDS)
        except TimeoutError as error:
            log.error("a step failed", step=name, error=str(error))

    async def _serve_api(
        self, context: ApiContext, listener: socket.socket, ready: Callable[[str], None], asked: asyncio.Event
    ) -> None:
        create = create_app if "api" in self._settings.roles else create_health_app
        serving = await self._servers.serve_api(create(context, self.gate), listener)
        self._servers.serve_metrics(create_metrics_app(context, self._settings.metrics_token))
        host, port = listener.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        waiting = asyncio.create_task(asked.wait())
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        log.info("stopping: no new attempts; running attempts have time to end")

    async def _close_api(self) -> None:
        """Closes the API, after all attempts have drained."""
        self._events.close()  # followers would keep it open until the timeout
        self._engine.feed.close()
        await self._servers.stop()
        await self._limiter.give_back()
        await self._keyring.stop()

    def _cluster(self) -> ClusterState:
        own = self._engine.term.membership  # of the term that is under way
        return ClusterState(
            node=own.node,
            name=self._settings.node_name,
            standing=own.standing,
            owned=own.owned,
            view=own.view,
            clock=own.clock_state,
            clock_offset=own.clock_offset,
        )

    def _refusal(self) -> Overloaded | None:
        """Returns the reason to refuse changes, if the clock is wrong: changes have timestamps."""
        own = self._engine.term.membership
        if own.clock_state is not ClockState.WRONG:
            return None
        what = explain_clock(own.clock_offset or 0)
        return Overloaded(f"{what}, so it accepts no changes; use another node, or set its clock (NTP)", retry_after=10)

    def _engine_link(self) -> EngineLink:
        engine = self._engine
        return EngineLink(
            due_hint=lambda due_at: engine.term.due_hint(due_at),
            waiting_hint=lambda due_at: engine.term.waiting_hint(due_at),
            circuits_hint=lambda: engine.term.breaker.wake(),
            subscriptions_hint=lambda: engine.term.subscribers.wake(),
            signing_hint=lambda state: engine.term.signing.learn(state),
            cancel=lambda execution_id: engine.term.cancel(execution_id),
            subscriptions=lambda tenant: engine.term.subscribers.of(tenant),
            worker_gateway=lambda: engine.term.worker_gateway,
            cluster=self._cluster,
            health=engine.health,
            readings=engine.readings,
            facts=engine.facts,
            is_stopping=lambda: self._is_stopping,
        )

    def _context(self) -> ApiContext:
        settings, engine, streams = self._settings, self._engine_link(), Streams()
        sources = Sources(
            store=self._store,
            clock=self._engine.clock,
            logs=self._logs,
            events=self._events,
            streams=streams,
            engine=engine,
            capacity=self._capacity,
            roles=settings.roles,
            functions=self._metrics.writes.functions,
        )
        return ApiContext(
            store=self._store,
            clock=self._engine.clock,
            events=self._events,
            feed=self._engine.feed,
            random_bytes=rising(os.urandom),
            vault=self._vault,
            logs=self._logs,
            metrics=self._metrics,
            telemetry=self._telemetry,
            readings=Reader(sources).read,
            engine=engine,
            streams=streams,
            limits=ApiLimits(
                tiers=self._tiers,
                capacity=self._capacity,
                keys=KeyLimits(settings.tenant_keys_limit, settings.tenant_users_limit),
                connections=settings.tenant_connections_limit,
                channels=settings.tenant_channels_limit,
            ),
            rules=self._rules,
            forget_key=self._keyring.forget,
            derive_keys=self._signing.derive,
            bodies=self._bodies,
            operator_tenant=settings.operator_tenant,
            failure_threshold=settings.health_failure_threshold,
        )

    def gate(self, app: ASGIApp) -> ASGIApp:
        """Wraps the app in the gate, which every request passes."""
        return Gate(
            app,
            tokens=self._tokens,
            keyring=self._keyring,
            limiter=self._limiter,
            clock=self._engine.clock,
            origins=self._settings.cors_origins,
            request_ids=request_ids(os.urandom),
            refusal=self._refusal,
            telemetry=self._telemetry,
            bodies=self._bodies,
            is_traced=self._spans is not None,
        )

    def _watch_signals(self) -> asyncio.Event:
        """Returns an event that is set by SIGINT or SIGTERM."""
        asked = asyncio.Event()

        def ask() -> None:
            if asked.is_set():
                self._limit.hurry()
                self._engine.stop_waiting()
            self._is_stopping = True
            self._limit.begin()
            self._watchdog.end_in(self._limit.left() + GRACE_SECONDS)
            asked.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        return asked
