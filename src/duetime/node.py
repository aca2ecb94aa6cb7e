"""A node: one process with its parts, chosen by its settings from the adapters there are."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import resource
import signal
import socket
import sys
import zoneinfo
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn
from litestar.types import ASGIApp

from duetime.api.app import create_app, create_health_app
from duetime.api.auth.keyring import Keyring
from duetime.api.context import ApiContext, ClusterState
from duetime.api.gate import Gate
from duetime.api.http.held_bodies import HeldBodies
from duetime.api.http.protocol import BoundedProtocol, request_starts
from duetime.api.limiter import Limiter
from duetime.api.metrics import create_metrics_app
from duetime.api.random_ids import request_ids, rising
from duetime.assembly import (
    make_capacity,
    make_executors,
    make_limits,
    make_sql_rules,
    make_storage,
    make_tokens,
    own_database,
)
from duetime.audit_files import AuditFolder
from duetime.domain.breaker import Rules
from duetime.domain.defaults import OperatorDefaults
from duetime.domain.endpoints import SCRIPTS
from duetime.domain.errors import Overloaded
from duetime.domain.grants import KeyLimits
from duetime.domain.instants import SECOND
from duetime.domain.job import JobType
from duetime.domain.lease import ClockState, explain_clock
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import connection_place
from duetime.domain.sockets import Sockets
from duetime.domain.worker_limits import WorkerLimits
from duetime.engine.dispatcher import Limits
from duetime.engine.engine import Engine, EngineSettings
from duetime.engine.stop_limit import StopLimit
from duetime.events import EventHub
from duetime.executors.by_type import ByType
from duetime.executors.headers import signing_keys
from duetime.executors.http import HttpExecutor
from duetime.executors.sql.registering import refusal_of
from duetime.logs import open_logs
from duetime.private_files import advice_for, list_wide
from duetime.process.clock import SystemClock
from duetime.process.watchdog import GRACE_SECONDS, Watchdog
from duetime.settings import Setting
from duetime.telemetry.metrics import Metrics
from duetime.vault.aes import open_vault
from duetime.vault.signing import TenantKeys

log = structlog.get_logger()

# Threads that wait for Python's lock (the writer, the HTTP client's) get it after this long. The default of 5 ms is
# longer than a commit takes: with it, a busy loop makes every write wait.
SWITCH_INTERVAL_SECONDS = 0.0005
SHORTEST_STOP_SECONDS = 2.0  # beside the drain, however short HTTP_SHUTDOWN_TIMEOUT is: results are to be written
CLOSE_SECONDS = 0.5  # for each of logs, registry and store to close, even if a stop has used up its time
MOST_CONNECTIONS = 4096  # of clients; at most half of the descriptors, since jobs need some too
_SWITCHES = {JobType.SCRIPT: "ALLOW_SCRIPTS", JobType.SQL_QUERY: "ALLOW_SQL"}  # off unless the operator turns them on


class Node:
    def __init__(self, settings: Mapping[str, Setting]) -> None:
        value: Callable[[str], Any] = lambda name: settings[name].value  # noqa: E731
        self._settings = value
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []
        self._clock = SystemClock()
        self._events = EventHub()
        self._capacity = make_capacity(value)
        self._store, self._registry, bus = make_storage(value, self._capacity)
        self._vault = open_vault(value("ENCRYPTION_KEYS"), None if value("DATABASE_URL") else Path(value("DATA")))
        self._limits = make_limits(value)
        self._metrics = Metrics()
        self._tokens = make_tokens(value)
        self._logs = open_logs(value("LOGS_URL"), Path(value("DATA")) / "logs", value("LOG_SIZE_LIMIT"), self._clock)
        self._signing = TenantKeys(signing_keys(value("SIGNING_SECRETS")), shared=value("SIGN_WITH_SHARED_KEY"))
        executors = make_executors(value, self._find_connection, self._keys_of)
        self._executor = ByType(executors)
        self._http = cast(HttpExecutor, executors[HttpRequest])
        stop_seconds = max(value("HTTP_SHUTDOWN_TIMEOUT"), SHORTEST_STOP_SECONDS)
        self._limit = StopLimit(value("DISPATCHER_DRAIN_TIMEOUT") + stop_seconds)
        self._watchdog = Watchdog()
        self._engine = Engine(
            self._store,
            self._registry,
            bus,
            self._executor,
            self._clock,
            self._events,
            EngineSettings(
                node_name=value("NODE_NAME"),
                roles=value("ROLES"),
                limits=Limits(
                    concurrency=value("DISPATCHER_WORKERS"),
                    endpoint=value("ENDPOINT_CONCURRENCY"),
                    tenant=value("TENANT_CONCURRENCY") or value("DISPATCHER_WORKERS"),
                    rate=value("ENDPOINT_RATE"),
                    special={SCRIPTS: value("SCRIPT_CONCURRENCY")},
                ),
                drain_seconds=value("DISPATCHER_DRAIN_TIMEOUT"),
                stop_seconds=stop_seconds,
                reconcile_interval_seconds=value("RECONCILE_INTERVAL"),
                reconcile_batch=value("RECONCILE_BATCH_SIZE"),
                history_seconds=value("EXECUTION_HISTORY_RETENTION"),
                history_most=value("EXECUTION_HISTORY_LIMIT"),
                logs_most_bytes=value("LOGS_TOTAL_LIMIT"),
                audit_seconds=value("AUDIT_RETENTION"),
                worker_lease_seconds=value("WORKER_LEASE_SECONDS"),
                workers=WorkerLimits(value("TENANT_WORKERS_LIMIT")),
                breaker=Rules(value("CIRCUIT_BREAKER_THRESHOLD"), int(value("CIRCUIT_BREAKER_COOLDOWN") * SECOND)),
                notifications=self._limits.notifications,
            ),
            vault=self._vault,
            logs=self._logs,
            archive=AuditFolder(Path(value("AUDIT_EXPORT_FOLDER") or Path(value("DATA")) / "audit")),
            notification_refused=self._metrics.note_refused_notification,
        )
        self._keyring = Keyring(self._store, self._engine.clock)
        self._limiter = Limiter(self._store, self._engine.clock, self._limits)
        self._bodies = HeldBodies()

    def _keys_of(self, tenant: str) -> tuple[bytes, ...]:
        """Those that sign a request of this tenant now."""
        return self._signing.sign_with(tenant, self._engine.term.signing.versions(tenant))

    async def _find_connection(self, tenant: str, name: str) -> str | None:
        """The URL of a connection, in plain."""
        record = await self._store.get_connection(tenant, name)
        return None if record is None else self._vault.decrypt(tenant, connection_place(name), record.url)

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Run until SIGINT or SIGTERM, then stop in the order that loses nothing. A second signal ends it at once.

        Whatever hangs, the process ends in the time that a stop has.
        """
        tune_the_interpreter()
        # The port first: a node that can't be reached should not run jobs either.
        with self._listen() as listener:
            asked = self._hear_signals()  # before anything runs that would have to be drained
            async with self.running() as context:
                await self._serve_api(context, listener, ready, asked)
        log.info("stopped")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ApiContext]:
        """Without a port: jobs run, and whoever is in this process may ask. The API, if there is one, ends last."""
        await self._store.start()
        try:
            self._vault.start()
            if not self._vault.can_encrypt:
                log.warning(
                    "there are no ENCRYPTION_KEYS: new jobs with header values or other secrets are refused, "
                    "and executions of those that exist fail"
                )
            await self._registry.start()
            await self._logs.start()
            if wide := list_wide(Path(self._settings("DATA"))):
                log.warning("others than its owner have rights to the data folder", advice=advice_for(wide))
            await self._engine.start()
            try:
                yield self._context()
            finally:
                await self._engine.stop(self._limit)
                await self._close(self._close_api())
        finally:
            await self._close(self._logs.stop())
            await self._close(self._registry.stop())
            await self._close(self._store.stop())

    async def _close(self, step: Coroutine[Any, Any, None]) -> None:
        name = getattr(step, "__qualname__", "")
        try:
            await self._limit.within(step, self._limit.seconds, CLOSE_SECONDS)
        except TimeoutError as error:
            log.error("a step failed", step=name, error=str(error))

    def _listen(self) -> socket.socket:
        host, port = self._settings("HOST"), self._settings("PORT")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=2048)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"can't listen on {host} port {port}: {reason}; choose another with --port") from None

    async def _serve_api(
        self, context: ApiContext, listener: socket.socket, ready: Callable[[str], None], asked: asyncio.Event
    ) -> None:
        create = create_app if "api" in self._settings("ROLES") else create_health_app
        server = _Server(self._http_config(create(context, self.gate)))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        self._servers.append((server, serving))
        await server.wait_until_started(serving)
        self._serve_metrics(context)
        host, port = listener.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        waiting = asyncio.create_task(asked.wait())
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        log.info("stopping: no new runs; what is running has time to end")

    def _serve_metrics(self, context: ApiContext) -> None:
        """Where its port is somebody else's, the node works all the same: whoever scrapes it will notice."""
        port = self._settings("METRICS_PORT")
        if not port:
            return
        try:
            listener = socket.create_server((self._settings("METRICS_HOST"), port))
        except OSError as error:
            log.warning("no metrics: can't listen; choose another METRICS_PORT, or 0", port=port, error=str(error))
            return
        server = _Server(self._http_config(create_metrics_app(context)))
        self._servers.append((server, asyncio.create_task(server.serve(sockets=[listener]))))

    async def _close_api(self) -> None:
        """The API answers until all runs have drained, then closes."""
        self._events.close()  # followers would keep it open until the timeout
        for server, serving in self._servers:
            server.should_exit = True
            await serving
        await self._limiter.give_back()
        await self._keyring.stop()

    def _cluster(self) -> ClusterState:
        own = self._engine.term.membership  # of the term that is under way
        return ClusterState(
            own.node, self._settings("NODE_NAME"), own.standing, own.owned, own.view, own.clock_state, own.clock_offset
        )

    def _refusal(self) -> Overloaded | None:
        """Why no changes are taken: what is created, or asked for, carries the time."""
        own = self._engine.term.membership
        if own.clock_state is not ClockState.WRONG:
            return None
        what = explain_clock(own.clock_offset or 0)
        return Overloaded(f"{what}, so it takes no changes; ask another node, or set its clock (NTP)", retry_after=10)

    def _context(self) -> ApiContext:
        return ApiContext(
            self._store,
            self._engine.clock,
            self._events,
            rising(os.urandom),
            self._engine.due_hint,
            self._engine.waiting_hint,
            self._engine.cancel,
            self._engine.health,
            self._cluster,
            self._vault,
            self._limits,
            self._capacity,
            self._keyring.forget,
            self._metrics,
            lambda: self._engine.term.worker_gateway,
            self._logs,
            frozenset(JobType) - {kind for kind, switch in _SWITCHES.items() if not self._settings(switch)},
            KeyLimits(self._settings("TENANT_KEYS_LIMIT"), self._settings("TENANT_USERS_LIMIT")),
            self._signing.derive,
            lambda state: self._engine.term.signing.learn(state),
            circuits_hint=self._engine.circuits_hint,
            subscriptions=lambda tenant: self._engine.term.subscribers.of(tenant),
            subscriptions_hint=lambda: self._engine.term.subscribers.wake(),
            connection_refusal=lambda url: refusal_of(
                url, make_sql_rules(self._settings), own_database(self._settings)
            ),
            bodies=self._bodies,
            connections_limit=self._settings("TENANT_CONNECTIONS_LIMIT"),
            defaults=OperatorDefaults(
                self._settings("JOB_EXECUTION_TIMEOUT"), self._settings("MAX_EXECUTION_ATTEMPTS")
            ),
            target_refusal=self._http.refusal,
        )

    def gate(self, app: ASGIApp) -> ASGIApp:
        """What every request passes through."""
        origins = self._settings("CORS_ORIGINS")
        clock = self._engine.clock
        return Gate(
            app,
            self._tokens,
            self._keyring,
            self._limiter,
            clock,
            origins,
            request_ids(os.urandom),
            self._refusal,
            self._bodies,
        )

    def _http_config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            loop="uvloop",
            http=cast(Any, partial(BoundedProtocol, sockets=self._sockets(), starts=request_starts())),
            ws="none",  # it would take connections over from the protocol that bounds them
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(self._settings("HTTP_SHUTDOWN_TIMEOUT")),
        )

    def _sockets(self) -> Sockets[BoundedProtocol]:
        """The bounds on the connections of one server."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        capacity = MOST_CONNECTIONS if descriptors < 0 else min(MOST_CONNECTIONS, descriptors // 2)
        return Sockets(capacity, self._settings("CONNECTIONS_PER_ADDRESS"))

    def _hear_signals(self) -> asyncio.Event:
        """Set once the node is asked to stop."""
        asked = asyncio.Event()

        def ask() -> None:
            if asked.is_set():
                self._limit.hurry()
                self._engine.stop_waiting()
            self._limit.begin()
            self._watchdog.end_in(self._limit.left() + GRACE_SECONDS)
            asked.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        return asked


def tune_the_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # A run under way holds a socket: take as many as the machine lets us have.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # What is loaded now stays: the collector need not look at it again. A burst makes many short-lived objects and no
    # cycles, so it may look less often: 6 % of the time of a burst, measured.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # Zones come from the tzdata package, the same on every node, and not from what the machine happens to have.
    zoneinfo.reset_tzpath(())


class _Server(uvicorn.Server):
    """uvicorn, with its start and its signals in our hands: the API stays up while runs drain."""

    def capture_signals(self) -> Any:
        return nullcontext()

    async def wait_until_started(self, serving: asyncio.Task[None]) -> None:
        while not self.started:
            if serving.done():
                serving.result()
                raise OSError("the server did not start")
            await asyncio.sleep(0.005)
