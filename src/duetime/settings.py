"""Settings: flag > environment (DUETIME_…) > duetime.toml > default, each with where it came from."""

from __future__ import annotations

import binascii
import ipaddress
import os
import re
import socket
import tomllib
from base64 import b64decode
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from duetime.domain.database_urls import split_url
from duetime.domain.sql_servers import parse_servers
from duetime.vault.keys import Key, parse_keys

CONFIG_FILE = "duetime.toml"
ROLES = frozenset({"api", "timer", "worker", "alerts"})
LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "********"  # shown in place of a secret
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]*)(:\d*)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
LEAST_SECRET_BYTES = 32


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


def _text(value: str) -> str:
    return value


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _count(value: str) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _limit(value: str) -> int:
    number = _whole(value)
    if number < 0:
        raise ValueError("must not be negative; 0 stands for no limit of its own")
    return number


def _rate(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if number != 0 and not 0.001 <= number <= 100_000:
        raise ValueError("must be 0, or lie between 0.001 and 100000 a second")
    return number


def _port(value: str) -> int:
    number = _whole(value)
    if not 0 <= number <= 65_535:
        raise ValueError("must lie between 0 and 65535")
    return number


def parse_duration(value: str) -> float:
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("must be a duration such as 500ms, 5s, 2m, 1h or 30d")
    return float(match[1]) * _UNITS[match[2]]


def _period(value: str) -> float:
    seconds = parse_duration(value)
    if seconds < 1:
        raise ValueError("must be at least 1s")
    return seconds


def _level(value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return lowered


def _secrets(value: str) -> tuple[str, ...]:
    """No message may hold a secret."""
    secrets = tuple(part.strip() for part in value.split(",") if part.strip())
    for secret in secrets:
        try:
            empty = secret.startswith("whsec_") and not b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            empty = True
        if empty:
            raise ValueError("after whsec_ there must be base64, such as `openssl rand -base64 32` prints")
    return secrets


def _jwt_secret(value: str) -> str:
    if value and len(value.encode()) < LEAST_SECRET_BYTES:
        raise ValueError(f"must have at least {LEAST_SECRET_BYTES} bytes; `openssl rand -base64 32` prints one")
    return value


def _claim(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty: a token has to name it")
    return value


def _origins(value: str) -> tuple[str, ...]:
    return tuple(_origin(part.strip().lower()) for part in value.split(",") if part.strip())


def _origin(text: str) -> str:
    """As browsers send it: a value that never matches would look like a server that is broken."""
    if "*" in text:
        raise ValueError("* would let every page of the web ask in its visitors' name; name each origin")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise ValueError("must be origins such as https://app.example.com,http://localhost:3000 with nothing behind")
    if (match[1], match[3]) in (("http", "80"), ("https", "443")):
        raise ValueError(f"leave out :{match[3]}, as browsers do")
    return text


def _size(value: str) -> int | None:
    """Bytes, or None if empty. A KB is 1024 bytes, as memory is counted."""
    if not value.strip():
        return None
    match = _SIZE.fullmatch(value.strip())
    size = 0 if match is None else int(float(match[1]) * 1024 ** _POWERS.get((match[2] or "").lower(), 0))
    if size < 1:
        raise ValueError("must be a size such as 2GB, 500MB, 1024KB or plain bytes")
    return size


def _percent(value: str) -> int:
    number = _whole(value)
    if not 1 <= number <= 100:
        raise ValueError("must lie between 1 and 100")
    return number


def _encryption_keys(value: str) -> tuple[Key, ...]:
    """No message may hold a key."""
    return parse_keys(value.split(","))


def _switch(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "yes", "1", "false", "no", "0", ""):
        raise ValueError("must be true or false")
    return lowered in ("true", "yes", "1")


def _networks(value: str) -> Any:
    """true, false, or a list of networks."""
    lowered = value.strip().lower()
    if lowered in ("true", "yes", "1"):
        return True
    if lowered in ("false", "no", "0", ""):
        return ()
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in value.split(","))
    except ValueError:
        raise ValueError("must be true, false, or networks such as 10.0.0.0/8,192.168.1.0/24") from None


def _database_url(value: str) -> str:
    """No message may hold a password."""
    if value and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql://, such as postgresql://user:password@host:5432/duetime")
    # Else a part of a password would pass for the host's name or the database's, which are shown.
    parts = split_url(value)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if "@" in parts.path or parts.fragment or not all(_HOST.fullmatch(host) for host in hosts):
        raise ValueError("in a password, signs such as / @ : # ? must be written as %2F %40 %3A %23 %3F")
    return value


def _connections(value: str) -> int:
    number = _whole(value)
    if number < 6:  # the writers, the engine's readers, and one for people
        raise ValueError("must be at least 6")
    return number


def _roles(value: str) -> frozenset[str]:
    roles = frozenset(part.strip().lower() for part in value.split(",") if part.strip())
    if not roles or roles - ROLES:
        raise ValueError(f"must be one or more of {', '.join(sorted(ROLES))}, with commas between")
    return roles


# name: (default, how to read it, what it is for)
SETTINGS: dict[str, tuple[str, Any, str]] = {
    "HOST": ("127.0.0.1", _text, "address to listen on"),
    "PORT": ("8080", _port, "port to listen on"),
    "DATA": ("duetime-data", _text, "folder of the database, where there is no DATABASE_URL"),
    "DATABASE_URL": ("", _database_url, "postgresql://…: several nodes share it; empty: SQLite in DATA"),
    "DB_OP_TIMEOUT": (
        "5s",
        _period,
        "how long anything waits for PostgreSQL, and people for what they read from SQLite",
    ),
    "DB_MAX_OPEN_CONNS": ("25", _connections, "connections to PostgreSQL at most, beside the heartbeat's"),
    "ROLES": ("api,timer,worker,alerts", _roles, "what this node does; the default is all of it"),
    "NODE_LEASE_SECONDS": ("5s", _period, "how long a silent node keeps its shards and runs"),
    "NODE_NAME": ("", _text, "this node's name, its own in the cluster; the machine's name (and port) if empty"),
    "DISPATCHER_WORKERS": ("512", _count, "runs at once in all; tenants share them"),
    "ENDPOINT_CONCURRENCY": ("64", _count, "runs at once against one scheme, host and port; tenants share them"),
    "ENDPOINT_RATE": ("0", _rate, "requests a second to one scheme, host and port, from this node; 0: no limit"),
    "TENANT_CONCURRENCY": ("0", _limit, "runs at once of one tenant; 0: as many as DISPATCHER_WORKERS"),
    "DISPATCHER_DRAIN_TIMEOUT": ("30s", parse_duration, "how long a stop waits for what is running"),
    "HTTP_SHUTDOWN_TIMEOUT": ("10s", parse_duration, "how long a stop waits for requests to this server"),
    "RECONCILE_INTERVAL": ("5m", _period, "how often runs of lost nodes are looked for"),
    "RECONCILE_BATCH_SIZE": ("500", _count, "how many of them are taken over at once"),
    "CIRCUIT_BREAKER_THRESHOLD": ("5", _limit, "failed executions in a row that open a target's circuit; 0: never"),
    "CIRCUIT_BREAKER_COOLDOWN": ("2m", _period, "how long an open circuit waits before one run tries its target"),
    "EXECUTION_HISTORY_RETENTION": ("30d", parse_duration, "how long executions are kept"),
    "EXECUTION_HISTORY_LIMIT": ("10000000", _count, "how many executions are kept at most"),
    "AUDIT_RETENTION": ("365d", parse_duration, "how long entries of the audit stay in the database; 0: for ever"),
    "AUDIT_EXPORT_FOLDER": ("", _text, "where entries are written before they are removed; empty: audit in DATA"),
    "WORKER_LEASE_SECONDS": ("5s", _period, "how long a silent worker keeps the functions that it runs"),
    "LOGS_URL": ("", _text, "s3://bucket/prefix and the like: where logs are kept; empty: in DATA, on this machine"),
    "LOG_SIZE_LIMIT": ("1MB", _size, "how much of the log of one attempt is kept"),
    "LOGS_TOTAL_LIMIT": ("10GB", _size, "how much all logs may hold; beyond it the largest tenants lose their oldest"),
    "ALLOW_SCRIPTS": ("false", _switch, "true lets jobs run programs on the machines of the nodes"),
    "SCRIPT_CONCURRENCY": ("8", _count, "scripts at once on this node; tenants share them"),
    "SCRIPT_MEMORY_LIMIT": ("512MB", _size, "memory of one script, all its processes together"),
    "SCRIPT_CPU_LIMIT": ("0s", parse_duration, "processor time of each process of a script; 0: none of its own"),
    "SCRIPT_PROCESS_LIMIT": ("64", _count, "processes of one script at once"),
    "SCRIPT_FILE_LIMIT": ("100MB", _size, "the largest file that a script may write"),
    "ALLOW_SQL": ("false", _switch, "true lets jobs run statements on databases that admins register"),
    "SQL_ALLOWED_HOSTS": (
        "public",
        parse_servers,
        "database servers: public, names, addresses, networks; or with :port",
    ),
    "SQL_ALLOW_SUPERUSERS": ("false", _switch, "true lets SQL jobs use roles that can run programs at the database"),
    "SQL_RECEIVE_LIMIT": ("8MB", _size, "how much a PostgreSQL server may send for one statement"),
    "SQL_SQLITE_FOLDER": ("", _text, "folder of the tenants' SQLite files, one folder for each; empty: no SQLite jobs"),
    "SQL_SQLITE_FILE_LIMIT": ("100MB", _size, "the largest SQLite file that SQL jobs may make"),
    "SQL_SQLITE_MEMORY_LIMIT": ("64MB", _size, "memory of SQLite for one statement"),
    "SQL_ROWS_LIMIT": ("100", _count, "rows of a statement's result that are kept"),
    "SQL_RESULT_LIMIT": ("16KB", _size, "size of a statement's result that is kept"),
    "SQL_CONNECTIONS": ("4", _count, "connections of this node to one database of SQL jobs"),
    "ALLOW_PRIVATE_TARGETS": ("false", _networks, "true, or networks that jobs may call although they are not public"),
    "SIGNING_SECRETS": (
        "",
        _secrets,
        "whsec_… secrets that tenants' signing keys are derived from; the first is the newest",
    ),
    "SIGN_WITH_SHARED_KEY": (
        "false",
        _switch,
        "true also signs each request with SIGNING_SECRETS themselves, for all tenants",
    ),
    "ENCRYPTION_KEYS": ("", _encryption_keys, "id:base64 keys that seal secrets at rest; the first is the newest"),
    "JWT_SECRET": ("", _jwt_secret, "verifies tokens signed with HS256; with it, or JWKS_FILE, who asks must prove it"),
    "JWKS_FILE": ("", _text, "public keys that verify tokens signed with RS256 or EdDSA; read again when it changes"),
    "JWT_ISSUER": ("duetime", _claim, "who must have issued a token: its iss"),
    "JWT_AUDIENCE": ("duetime", _claim, "whom a token must be made for: its aud"),
    "TENANT_KEYS_LIMIT": ("500", _count, "API keys of one tenant that are neither revoked nor expired"),
    "TENANT_USERS_LIMIT": ("100", _count, "users of one tenant that such API keys are for"),
    "TENANT_WORKERS_LIMIT": ("2000", _count, "workers of Python functions of one tenant, on all nodes together"),
    "TENANT_CONNECTIONS_LIMIT": ("100", _count, "databases that one tenant may register for SQL jobs"),
    "FREE_REQUESTS_PER_HOUR": ("1000", _limit, "requests an hour of a user of the tier free; 0: no limit"),
    "FREE_JOBS_PER_DAY": ("100", _limit, "new jobs a day of a user of the tier free; 0: no limit"),
    "PRO_REQUESTS_PER_HOUR": ("10000", _limit, "requests an hour of a user of the tier pro; 0: no limit"),
    "PRO_JOBS_PER_DAY": ("10000", _limit, "new jobs a day of a user of the tier pro; 0: no limit"),
    "CONNECTIONS_PER_ADDRESS": ("1024", _limit, "connections to this server from one address; 0: no such limit"),
    "CORS_ORIGINS": ("", _origins, "origins whose pages may ask from a browser, with commas; empty: none"),
    "QUEUE_MEMORY_LIMIT": ("", _size, "how much the jobs may hold: 2GB, 500MB, plain bytes; empty: by percent"),
    "QUEUE_MEMORY_PERCENT": ("50", _percent, "how much of the memory there is, where QUEUE_MEMORY_LIMIT is empty"),
    "QUEUE_JOB_LIMIT": ("0", _limit, "how many jobs there may be; 0: no limit"),
    "TENANT_CAPACITY_PERCENT": ("75", _percent, "how much of both one tenant may hold; the rest is for the others"),
    "TENANT_NOTIFICATIONS_PER_HOUR": ("100000", _limit, "notifications an hour of one tenant; 0: no limit"),
    "METRICS_HOST": ("127.0.0.1", _text, "address of the metrics; they are for everyone who reaches it"),
    "METRICS_PORT": ("9090", _port, "port of the metrics; 0: off"),
    "LOG_LEVEL": ("info", _level, "debug, info, warning or error"),
}
SECRET = frozenset({"SIGNING_SECRETS", "DATABASE_URL", "JWT_SECRET", "ENCRYPTION_KEYS"})


_BESIDE = {"DATABASE_URL": ("DATABASE_URL",)}  # read from the environment under this name, too


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """All settings. Raises BadSetting."""
    file = Path(CONFIG_FILE)
    configured = _read_file(file) if file.exists() else {}
    unknown = [name for name in configured if name.upper() not in SETTINGS]
    if unknown:
        raise BadSetting(f"{CONFIG_FILE}: unknown setting '{unknown[0]}'; {_advice(unknown[0])}")
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


def _advice(name: str) -> str:
    near = get_close_matches(name.upper(), SETTINGS, n=1)
    return f"did you mean '{near[0].lower()}'?" if near else "`duetime config show` lists them all"


def _load(
    name: str, flags: Mapping[str, str | None], environment: Mapping[str, str], configured: Mapping[str, str]
) -> Setting:
    default, read, help_text = SETTINGS[name]
    text, source = default, "default"
    for candidate, where in (
        (configured.get(name.lower()), CONFIG_FILE),
        *((environment.get(other), other) for other in _BESIDE.get(name, ())),
        (environment.get(f"DUETIME_{name}"), f"DUETIME_{name}"),
        (flags.get(name), f"--{name.lower().replace('_', '-')}"),
    ):
        if candidate is not None:
            text, source = candidate, where
    try:
        value = read(text)
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
