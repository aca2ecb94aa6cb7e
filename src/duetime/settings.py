"""Settings: flag > environment (DUETIME_…) > duetime.toml > default, each with where it came from."""

from __future__ import annotations

import ipaddress
import os
import socket
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from duetime.domain.page_size import LAPSED_PAGE
from duetime.domain.sql_servers import parse_servers
from duetime.foreign_settings import FOREIGN, PREFIX, refusal
from duetime.setting_values import (
    attempt_seconds,
    attempts,
    claim,
    connections,
    count,
    database_url,
    domains,
    encryption_keys,
    jwt_secret,
    level,
    limit,
    networks,
    origins,
    parse_duration,
    percent,
    period,
    period_or_none,
    port,
    rate,
    roles,
    secrets,
    size,
    switch,
    text,
)

CONFIG_FILE = "duetime.toml"
HIDDEN = "********"  # shown in place of a secret


class BadSetting(Exception):
    """A setting can't be used. The message names it, where it came from, and what it should look like."""


class Setting(msgspec.Struct, frozen=True):
    """A value and where it came from."""

    name: str
    value: Any
    source: str
    text: str
    help: str

    @property
    def shown(self) -> str:
        """The value for a person's eyes: as it was written, a secret hidden."""
        if self.name in SECRET:
            return HIDDEN if self.value else ""
        return self.text or str(self.value or "")


# name: (default, how to read it, what it is for)
SETTINGS: dict[str, tuple[str, Any, str]] = {
    "HOST": ("127.0.0.1", text, "address to listen on"),
    "PORT": ("8080", port, "port to listen on"),
    "DATA": ("duetime-data", text, "folder of the database, where there is no DATABASE_URL"),
    "DATABASE_URL": ("", database_url, "postgresql://…: several nodes share it; empty: SQLite in DATA"),
    "DB_OP_TIMEOUT": (
        "5s",
        period,
        "how long anything waits for PostgreSQL, and people for what they read from SQLite",
    ),
    "DB_MAX_OPEN_CONNS": ("25", connections, "connections to PostgreSQL at most, beside the heartbeat's"),
    "DB_MAX_IDLE_CONNS": ("5", limit, "connections to PostgreSQL that are kept for reading while nobody reads"),
    "DB_CONN_MAX_LIFETIME": ("30m", period_or_none, "how old a connection to PostgreSQL may become; 0: any age"),
    "DB_CONN_MAX_IDLE_TIME": ("5m", period_or_none, "how long one for reading is kept unused; 0: any time"),
    "ROLES": ("api,timer,worker,alerts", roles, "what this node does; the default is all of it"),
    "NODE_LEASE_SECONDS": ("5s", period, "how long a silent node keeps its shards and runs"),
    "NODE_NAME": ("", text, "this node's name, its own in the cluster; the machine's name (and port) if empty"),
    "DISPATCHER_WORKERS": ("512", count, "runs at once in all; tenants share them"),
    "ENDPOINT_CONCURRENCY": ("64", count, "runs at once against one scheme, host and port; tenants share them"),
    "ENDPOINT_RATE": ("0", rate, "requests a second to one scheme, host and port, from this node; 0: no limit"),
    "TENANT_CONCURRENCY": ("0", limit, "runs at once of one tenant; 0: as many as DISPATCHER_WORKERS"),
    "JOB_EXECUTION_TIMEOUT": ("", attempt_seconds, "timeout_seconds of jobs that name none; empty: by type of job"),
    "MAX_EXECUTION_ATTEMPTS": ("", attempts, "attempts of jobs that name no retries; empty: by type of job"),
    "DISPATCHER_DRAIN_TIMEOUT": ("30s", parse_duration, "how long a stop waits for what is running"),
    "HTTP_SHUTDOWN_TIMEOUT": ("10s", parse_duration, "how long a stop waits for requests to this server"),
    "RECONCILE_INTERVAL": ("5m", period, "how often runs of lost nodes are looked for"),
    "RECONCILE_BATCH_SIZE": (str(LAPSED_PAGE), count, "how many of them are taken over at once"),
    "CIRCUIT_BREAKER_THRESHOLD": ("5", limit, "failed executions in a row that open a target's circuit; 0: never"),
    "CIRCUIT_BREAKER_COOLDOWN": ("2m", period, "how long an open circuit waits before one run tries its target"),
    "EXECUTION_HISTORY_RETENTION": ("30d", parse_duration, "how long executions are kept"),
    "EXECUTION_HISTORY_LIMIT": ("10000000", count, "how many executions are kept at most"),
    "AUDIT_RETENTION": ("365d", parse_duration, "how long entries of the audit stay in the database; 0: for ever"),
    "AUDIT_EXPORT_FOLDER": ("", text, "where entries are written before they are removed; empty: audit in DATA"),
    "WORKER_LEASE_SECONDS": ("5s", period, "how long a silent worker keeps the functions that it runs"),
    "LOGS_URL": ("", text, "s3://bucket/prefix and the like: where logs are kept; empty: in DATA, on this machine"),
    "LOG_SIZE_LIMIT": ("1MB", size, "how much of the log of one attempt is kept"),
    "LOGS_TOTAL_LIMIT": ("10GB", size, "how much all logs may hold; beyond it the largest tenants lose their oldest"),
    "ALLOW_SCRIPTS": ("false", switch, "true lets jobs run programs on the machines of the nodes"),
    "SCRIPT_CONCURRENCY": ("8", count, "scripts at once on this node; tenants share them"),
    "SCRIPT_MEMORY_LIMIT": ("512MB", size, "memory of one script, all its processes together"),
    "SCRIPT_CPU_LIMIT": ("0s", parse_duration, "processor time of each process of a script; 0: none of its own"),
    "SCRIPT_PROCESS_LIMIT": ("64", count, "processes of one script at once"),
    "SCRIPT_FILE_LIMIT": ("100MB", size, "the largest file that a script may write"),
    "ALLOW_SQL": ("false", switch, "true lets jobs run statements on databases that admins register"),
    "SQL_ALLOWED_HOSTS": (
        "public",
        parse_servers,
        "database servers: public, names, addresses, networks; or with :port",
    ),
    "SQL_ALLOW_SUPERUSERS": ("false", switch, "true lets SQL jobs use roles that can run programs at the database"),
    "SQL_RECEIVE_LIMIT": ("8MB", size, "how much a PostgreSQL server may send for one statement"),
    "SQL_SQLITE_FOLDER": ("", text, "folder of the tenants' SQLite files, one folder for each; empty: no SQLite jobs"),
    "SQL_SQLITE_FILE_LIMIT": ("100MB", size, "the largest SQLite file that SQL jobs may make"),
    "SQL_SQLITE_MEMORY_LIMIT": ("64MB", size, "memory of SQLite for one statement"),
    "SQL_ROWS_LIMIT": ("100", count, "rows of a statement's result that are kept"),
    "SQL_RESULT_LIMIT": ("16KB", size, "size of a statement's result that is kept"),
    "SQL_CONNECTIONS": ("4", count, "connections of this node to one database of SQL jobs"),
    "ALLOW_PRIVATE_TARGETS": ("false", networks, "true, or networks that jobs may call although they are not public"),
    "ALLOWED_TARGETS": ("", domains, "hosts that jobs may call: example.com,*.example.com; empty: any"),
    "TARGET_MAX_IDLE_CONNS": ("1024", count, "connections to targets that are kept for the next request"),
    "TARGET_MAX_IDLE_CONNS_PER_HOST": ("256", limit, "of these, to one scheme, host and port"),
    "TARGET_TLS_HANDSHAKE_TIMEOUT": ("10s", period, "how long a target's TLS handshake may take"),
    "TARGET_RESPONSE_HEADER_TIMEOUT": (
        "0s",
        period_or_none,
        "how long a target may take until its answer begins; 0: as long as the job's timeout_seconds",
    ),
    "SIGNING_SECRETS": (
        "",
        secrets,
        "whsec_… secrets that tenants' signing keys are derived from; the first is the newest",
    ),
    "SIGN_WITH_SHARED_KEY": (
        "false",
        switch,
        "true also signs each request with SIGNING_SECRETS themselves, for all tenants",
    ),
    "ENCRYPTION_KEYS": ("", encryption_keys, "id:base64 keys that encrypt secrets at rest; the first is the newest"),
    "JWT_SECRET": ("", jwt_secret, "verifies tokens signed with HS256; with it, or JWKS_FILE, who asks must prove it"),
    "JWKS_FILE": ("", text, "public keys that verify tokens signed with RS256 or EdDSA; read again when it changes"),
    "JWT_ISSUER": ("duetime", claim, "who must have issued a token: its iss; empty: not checked"),
    "JWT_AUDIENCE": ("duetime", claim, "whom a token must be made for: its aud; empty: not checked"),
    "TENANT_KEYS_LIMIT": ("500", count, "API keys of one tenant that are neither revoked nor expired"),
    "TENANT_USERS_LIMIT": ("100", count, "users of one tenant that such API keys are for"),
    "TENANT_WORKERS_LIMIT": ("2000", count, "workers of Python functions of one tenant, on all nodes together"),
    "TENANT_CONNECTIONS_LIMIT": ("100", count, "databases that one tenant may register for SQL jobs"),
    "FREE_REQUESTS_PER_HOUR": ("1000", limit, "requests an hour of a user of the tier free; 0: no limit"),
    "FREE_JOBS_PER_DAY": ("100", limit, "new jobs a day of a user of the tier free; 0: no limit"),
    "PRO_REQUESTS_PER_HOUR": ("10000", limit, "requests an hour of a user of the tier pro; 0: no limit"),
    "PRO_JOBS_PER_DAY": ("10000", limit, "new jobs a day of a user of the tier pro; 0: no limit"),
    "CONNECTIONS_PER_ADDRESS": ("1024", limit, "connections to this server from one address; 0: no such limit"),
    "CORS_ORIGINS": ("", origins, "origins whose pages may ask from a browser, with commas; empty: none"),
    "QUEUE_MEMORY_LIMIT": ("", size, "how much the jobs may hold: 2GB, 500MB, plain bytes; empty: by percent"),
    "QUEUE_MEMORY_PERCENT": ("50", percent, "how much of the memory there is, where QUEUE_MEMORY_LIMIT is empty"),
    "QUEUE_JOB_LIMIT": ("0", limit, "how many jobs there may be; 0: no limit"),
    "TENANT_CAPACITY_PERCENT": ("75", percent, "how much of both one tenant may hold; the rest is for the others"),
    "TENANT_NOTIFICATIONS_PER_HOUR": ("100000", limit, "notifications an hour of one tenant; 0: no limit"),
    "METRICS_HOST": ("127.0.0.1", text, "address of the metrics; they are for everyone who reaches it"),
    "METRICS_PORT": ("9090", port, "port of the metrics; 0: off"),
    "LOG_LEVEL": ("info", level, "debug, info, warning or error"),
}
SECRET = frozenset({"SIGNING_SECRETS", "DATABASE_URL", "JWT_SECRET", "ENCRYPTION_KEYS"})


# DUETIME_ names that are no settings: of the command line, and of what a script is told.
_OF_OTHER_PARTS = frozenset(
    {"URL", "TOKEN", "JOB_ID", "EXECUTION_ID", "ATTEMPT", "FENCING_TOKEN", "SCHEDULED_AT", "TRIGGER"}
)
_BESIDE = {"DATABASE_URL": ("DATABASE_URL",)}  # read from the environment under this name, too


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """All settings. Raises BadSetting."""
    file = Path(CONFIG_FILE)
    configured = _read_file(file) if file.exists() else {}
    _check_names(configured, environment)
    settings = {name: _load(name, flags, environment, configured) for name in SETTINGS}
    if not settings["NODE_NAME"].value:
        settings["NODE_NAME"] = msgspec.structs.replace(settings["NODE_NAME"], value=_own_name(settings))
    return settings


def load_some(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Only these, without flags: what else is wrong with the settings is of no matter here. Raises BadSetting."""
    file = Path(CONFIG_FILE)
    configured = _read_file(file) if file.exists() else {}
    return {name: _load(name, {}, environment, configured) for name in names}


def _own_name(settings: Mapping[str, Setting]) -> str:
    """Two nodes of one name would take each other for the earlier self: where there may be two, the port is in it."""
    host = socket.gethostname()
    return f"{host}:{settings['PORT'].value or os.getpid()}" if settings["DATABASE_URL"].value else host


def list_misspelt(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable whose name is close to a setting's. Others may belong to other programs."""
    sentences = []
    for given in sorted(environment):
        name = given.removeprefix(PREFIX)
        if name == given or name in SETTINGS or name in FOREIGN or name in _OF_OTHER_PARTS:
            continue
        if near := get_close_matches(name, SETTINGS, n=1, cutoff=0.75):
            sentences.append(f"{given} in the environment is not read: did you mean {PREFIX}{near[0]}?")
    return sentences


def _check_names(configured: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raises BadSetting for a name in the file that there is not, and for one of another scheduler's."""
    for name, value in configured.items():
        if name.upper() in FOREIGN:
            _check_foreign(name.upper(), value, CONFIG_FILE)
        elif name.upper() not in SETTINGS:
            raise BadSetting(f"{CONFIG_FILE}: unknown setting '{name}'; {_advice(name)}")
    for name in FOREIGN:
        if (given := environment.get(PREFIX + name)) is not None:
            _check_foreign(name, given, PREFIX + name)


def _check_foreign(name: str, value: str, source: str) -> None:
    if (sentence := refusal(name, value)) is not None:
        raise BadSetting(f"{name}: '{value}' (from {source}) can't be used: {sentence}")


def _advice(name: str) -> str:
    near = get_close_matches(name.upper(), SETTINGS, n=1)
    return f"did you mean '{near[0].lower()}'?" if near else "`duetime config show` lists them all"


def _load(
    name: str, flags: Mapping[str, str | None], environment: Mapping[str, str], configured: Mapping[str, str]
) -> Setting:
    default, parse, help_text = SETTINGS[name]
    text, source = default, "default"
    for candidate, where in (
        (configured.get(name.lower()), CONFIG_FILE),
        *((environment.get(other), other) for other in _BESIDE.get(name, ())),
        (environment.get(PREFIX + name), PREFIX + name),
        (flags.get(name), f"--{name.lower().replace('_', '-')}"),
    ):
        if candidate is not None:
            text, source = candidate, where
    try:
        value = parse(text)
    except ValueError as error:
        shown = HIDDEN if name in SECRET else text
        raise BadSetting(f"{name}: '{shown}' (from {source}) can't be used: {error}") from None
    return Setting(name, value, source, text, help_text)


def _read_file(file: Path) -> dict[str, str]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from None
    return {name.lower(): _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
