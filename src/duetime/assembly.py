"""The parts of a node, made from its settings: with node.py, the only files that name concrete adapters."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from duetime.api.auth.tokens import Tokens
from duetime.api.context import CreationRules
from duetime.bus.local import LocalBus
from duetime.bus.postgres import PostgresBus
from duetime.domain.breaker import Rules
from duetime.domain.capacity import Capacity
from duetime.domain.defaults import OperatorDefaults
from duetime.domain.endpoints import SCRIPTS
from duetime.domain.identity import Tier
from duetime.domain.instants import SECOND
from duetime.domain.job import JobType
from duetime.domain.limits import TierLimits
from duetime.domain.payloads import HttpRequest, Script, SqlQuery
from duetime.domain.upkeep import Upkeep
from duetime.domain.worker_limits import WorkerLimits
from duetime.engine.dispatcher import Limits
from duetime.engine.settings import EngineSettings
from duetime.events.hub import LOCAL_OPERATOR
from duetime.executors.http import HttpExecutor
from duetime.executors.pool import ConnectionLimits
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.request import ScriptLimits
from duetime.executors.sql.executor import SqlExecutor, refusal_of
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from duetime.ports.bus import Bus
from duetime.ports.executor import Executor
from duetime.ports.registry import Registry
from duetime.ports.store import Store
from duetime.process.memory import memory_limit
from duetime.registry.embedded import EmbeddedRegistry
from duetime.registry.postgres import PostgresRegistry
from duetime.settings.table import Settings
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.sqlite import SqliteStore

SHORTEST_STOP_SECONDS = 2.0  # after the drain, even if HTTP_SHUTDOWN_TIMEOUT is shorter: results must be written


def make_storage(settings: Settings, capacity: Capacity) -> tuple[Store, Registry, Bus]:
    if not settings.database_url:
        return SqliteStore(settings.data, capacity, settings.db_op_timeout), EmbeddedRegistry(), LocalBus()
    store = PostgresStore(
        settings.database_url,
        max_connections=settings.db_max_open_conns,
        op_timeout_seconds=settings.db_op_timeout,
        capacity=capacity,
        upkeep=Upkeep(
            most_idle=settings.db_max_idle_conns,
            idle_seconds=settings.db_conn_max_idle_time or None,
            lifetime_seconds=settings.db_conn_max_lifetime or None,
        ),
    )
    plain = Address(settings.database_url).url  # without the options of the store
    return store, PostgresRegistry(plain, settings.node_lease_seconds), PostgresBus(plain)


def make_capacity(settings: Settings) -> Capacity:
    memory = settings.queue_memory_limit or memory_limit() * settings.queue_memory_percent // 100
    is_shared = settings.jwt_secret or settings.jwks_file  # otherwise there is one tenant, who may use all
    return Capacity(settings.queue_job_limit or None, memory, settings.tenant_capacity_percent if is_shared else 100)


def make_tier_limits(settings: Settings) -> TierLimits:
    return TierLimits.of(
        {Tier.FREE: settings.free_requests_per_hour, Tier.PRO: settings.pro_requests_per_hour},
        {Tier.FREE: settings.free_jobs_per_day, Tier.PRO: settings.pro_jobs_per_day},
        settings.tenant_notifications_per_hour,
    )


def make_tokens(settings: Settings) -> Tokens | None:
    """Returns None if no identity is set up."""
    secret, file = settings.jwt_secret, settings.jwks_file
    if not secret and not file:
        return None
    return Tokens(secret=secret, jwks_file=file, issuer=settings.jwt_issuer, audience=settings.jwt_audience)


def operator_tenant(settings: Settings) -> str | None:
    """Returns the tenant whose admins learn of nodes and shards; None: nobody does, through the API."""
    return None if settings.jwt_secret or settings.jwks_file else LOCAL_OPERATOR


def make_engine_settings(settings: Settings, tiers: TierLimits) -> EngineSettings:
    return EngineSettings(
        node_name=settings.node_name,
        roles=settings.roles,
        limits=Limits(
            concurrency=settings.dispatcher_workers,
            endpoint=settings.endpoint_concurrency,
            tenant=settings.tenant_concurrency or settings.dispatcher_workers,
            rate=settings.endpoint_rate,
            special={SCRIPTS: settings.script_concurrency},
        ),
        drain_seconds=settings.dispatcher_drain_timeout,
        stop_seconds=max(settings.http_shutdown_timeout, SHORTEST_STOP_SECONDS),
        reconcile_interval_seconds=settings.reconcile_interval,
        reconcile_batch=settings.reconcile_batch_size,
        history_seconds=settings.execution_history_retention,
        history_most=settings.execution_history_limit,
        logs_most_bytes=settings.logs_total_limit,
        audit_seconds=settings.audit_retention,
        worker_lease_seconds=settings.worker_lease_seconds,
        workers=WorkerLimits(settings.tenant_workers_limit),
        breaker=Rules(settings.circuit_breaker_threshold, int(settings.circuit_breaker_cooldown * SECOND)),
        notifications=tiers.notifications,
    )


def make_executors(
    settings: Settings, find: Callable[[str, str], Awaitable[str | None]], keys_of: Callable[[str], tuple[bytes, ...]]
) -> tuple[HttpExecutor, dict[type, Executor[Any]]]:
    """Returns the executor of webhooks, and all executors by type of payload. (Workers run Python functions.)"""
    webhooks = HttpExecutor(
        allow=settings.allow_private_targets,
        domains=settings.allowed_targets,
        limits=ConnectionLimits(
            idle=settings.target_max_idle_conns,
            idle_of_origin=settings.target_max_idle_conns_per_host,
            handshake_seconds=settings.target_tls_handshake_timeout,
            header_seconds=settings.target_response_header_timeout or None,
        ),
        keys_of=keys_of,
    )
    script_limits = ScriptLimits(
        cpu_seconds=math.ceil(settings.script_cpu_limit),
        memory_bytes=settings.script_memory_limit,
        file_bytes=settings.script_file_limit,
        processes=settings.script_process_limit,
    )
    sql_limits = SqlLimits(
        rows=settings.sql_rows_limit,
        bytes=settings.sql_result_limit,
        connections=settings.sql_connections,
        received_bytes=settings.sql_receive_limit,
        file_bytes=settings.sql_sqlite_file_limit,
        memory_bytes=settings.sql_sqlite_memory_limit,
    )
    return webhooks, {
        HttpRequest: webhooks,
        Script: ScriptExecutor(script_limits, allowed=settings.allow_scripts),
        SqlQuery: SqlExecutor(find, own_database(settings), sql_limits, make_sql_rules(settings)),
    }


def own_database(settings: Settings) -> OwnDatabase:
    return OwnDatabase(None if settings.database_url else settings.data, settings.database_url or None)


def make_sql_rules(settings: Settings) -> SqlRules:
    return SqlRules(
        allowed=settings.allow_sql,
        servers=settings.sql_allowed_hosts,
        superusers=settings.sql_allow_superusers,
        sqlite_folder=settings.sql_sqlite_folder,
    )


def make_creation_rules(settings: Settings, webhooks: HttpExecutor) -> CreationRules:
    is_off = {JobType.SCRIPT: not settings.allow_scripts, JobType.SQL_QUERY: not settings.allow_sql}
    return CreationRules(
        types=frozenset(kind for kind in JobType if not is_off.get(kind)),
        defaults=OperatorDefaults(settings.job_execution_timeout, settings.max_execution_attempts),
        target_refusal=webhooks.guard.refusal,
        connection_refusal=lambda url: refusal_of(url, make_sql_rules(settings), own_database(settings)),
    )
