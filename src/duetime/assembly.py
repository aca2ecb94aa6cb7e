"""The parts of a node, made from its settings: with node.py, the only files that name concrete adapters.

`value` returns a setting by its name.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from duetime.api.auth.tokens import Tokens
from duetime.bus.local import LocalBus
from duetime.bus.postgres import PostgresBus
from duetime.domain.capacity import Capacity
from duetime.domain.identity import Tier
from duetime.domain.limits import TierLimits
from duetime.domain.payloads import HttpRequest, Script, SqlQuery
from duetime.domain.upkeep import Upkeep
from duetime.executors.http import HttpExecutor
from duetime.executors.pool import ConnectionLimits
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.limits import ScriptLimits
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from duetime.ports.bus import Bus
from duetime.ports.executor import Executor
from duetime.ports.registry import Registry
from duetime.ports.store import Store
from duetime.process.memory import memory_limit
from duetime.registry.embedded import EmbeddedRegistry
from duetime.registry.postgres import PostgresRegistry
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.sqlite import SqliteStore


def make_executors(
    value: Callable[[str], Any], find: Callable[[str, str], Awaitable[str | None]],
    keys_of: Callable[[str], tuple[bytes, ...]],
) -> dict[type, Executor[Any]]:  # fmt: skip
    """What this node can run, by payload. (Python functions are for workers.)"""
    limits = ScriptLimits(
        cpu_seconds=math.ceil(value("SCRIPT_CPU_LIMIT")), memory_bytes=value("SCRIPT_MEMORY_LIMIT"),
        file_bytes=value("SCRIPT_FILE_LIMIT"), processes=value("SCRIPT_PROCESS_LIMIT"),
    )  # fmt: skip
    return {
        HttpRequest: HttpExecutor(
            allow=value("ALLOW_PRIVATE_TARGETS"), domains=value("ALLOWED_TARGETS"), limits=make_target_limits(value),
            keys_of=keys_of,
        ),
        Script: ScriptExecutor(limits, allowed=value("ALLOW_SCRIPTS")),
        SqlQuery: SqlExecutor(
            find,
            own_database(value),
            SqlLimits(
                value("SQL_ROWS_LIMIT"), value("SQL_RESULT_LIMIT"), value("SQL_CONNECTIONS"),
                received_bytes=value("SQL_RECEIVE_LIMIT"), file_bytes=value("SQL_SQLITE_FILE_LIMIT"),
                memory_bytes=value("SQL_SQLITE_MEMORY_LIMIT"),
            ),
            make_sql_rules(value),
        ),
    }  # fmt: skip


def make_target_limits(value: Callable[[str], Any]) -> ConnectionLimits:
    return ConnectionLimits(
        idle=value("TARGET_MAX_IDLE_CONNS"), idle_of_origin=value("TARGET_MAX_IDLE_CONNS_PER_HOST"),
        handshake_seconds=value("TARGET_TLS_HANDSHAKE_TIMEOUT"),
        header_seconds=value("TARGET_RESPONSE_HEADER_TIMEOUT") or None,
    )  # fmt: skip


def own_database(value: Callable[[str], Any]) -> OwnDatabase:
    return OwnDatabase(None if value("DATABASE_URL") else Path(value("DATA")), value("DATABASE_URL") or None)


def make_sql_rules(value: Callable[[str], Any]) -> SqlRules:
    return SqlRules(
        value("ALLOW_SQL"), value("SQL_ALLOWED_HOSTS"), value("SQL_ALLOW_SUPERUSERS"), value("SQL_SQLITE_FOLDER")
    )


def make_capacity(value: Callable[[str], Any]) -> Capacity:
    memory = value("QUEUE_MEMORY_LIMIT") or memory_limit() * value("QUEUE_MEMORY_PERCENT") // 100
    is_shared = value("JWT_SECRET") or value("JWKS_FILE")  # else there is one tenant, who may have all
    return Capacity(value("QUEUE_JOB_LIMIT") or None, memory, value("TENANT_CAPACITY_PERCENT") if is_shared else 100)


def make_limits(value: Callable[[str], Any]) -> TierLimits:
    requests, jobs = ("FREE_REQUESTS_PER_HOUR", "PRO_REQUESTS_PER_HOUR"), ("FREE_JOBS_PER_DAY", "PRO_JOBS_PER_DAY")
    tiers = Tier.FREE, Tier.PRO
    return TierLimits.of(
        dict(zip(tiers, map(value, requests), strict=True)), dict(zip(tiers, map(value, jobs), strict=True)),
        value("TENANT_NOTIFICATIONS_PER_HOUR"),
    )  # fmt: skip


def make_tokens(value: Callable[[str], Any]) -> Tokens | None:
    """None: no identity is set up."""
    secret, file = value("JWT_SECRET"), value("JWKS_FILE")
    if not secret and not file:
        return None
    path = Path(file) if file else None
    return Tokens(secret=secret, jwks_file=path, issuer=value("JWT_ISSUER"), audience=value("JWT_AUDIENCE"))


def make_storage(value: Callable[[str], Any], capacity: Capacity) -> tuple[Store, Registry, Bus]:
    if url := value("DATABASE_URL"):
        store = PostgresStore(
            url, max_connections=value("DB_MAX_OPEN_CONNS"), op_timeout_seconds=value("DB_OP_TIMEOUT"),
            capacity=capacity,
            upkeep=Upkeep(
                value("DB_MAX_IDLE_CONNS"), value("DB_CONN_MAX_IDLE_TIME") or None,
                value("DB_CONN_MAX_LIFETIME") or None,
            ),
        )  # fmt: skip
        plain = Address(url).url  # without what only the store understands
        return store, PostgresRegistry(plain, value("NODE_LEASE_SECONDS")), PostgresBus(plain)
    store_here = SqliteStore(Path(value("DATA")), capacity, value("DB_OP_TIMEOUT"))
    return store_here, EmbeddedRegistry(), LocalBus()
