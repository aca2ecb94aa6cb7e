"""Parsers of settings. Each returns the value of a text, or raises ValueError with the expected form.

No message holds the value: some are secrets.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from duetime.domain.channels import channel_url_problem, kind_of
from duetime.domain.database_urls import split_url
from duetime.domain.encryption_keys import Key, parse_keys
from duetime.domain.http_rules import url_problem
from duetime.domain.sql_servers import Network
from duetime.domain.targets import AllowedDomains, parse_domains

ROLES = frozenset({"api", "timer", "worker", "alerts"})
LEAST_SECRET_BYTES = 32
LONGEST_ATTEMPT_SECONDS = 86_400.0  # the limit of a job's own timeout
MOST_ATTEMPTS = 101
LEAST_CONNECTIONS = 6  # the writers, the engine's readers, and one for the API

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]*)(:\d*)?")
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def text(value: str) -> str:
    return value


def path(value: str) -> Path | None:
    """None if empty."""
    return Path(value) if value else None


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _between(least: int, most: float, form: str) -> Callable[[str], int]:
    """Returns a parser of whole numbers within bounds."""

    def read(value: str) -> int:
        number = _whole(value)
        if not least <= number <= most:
            raise ValueError(form)
        return number

    return read


count = _between(1, math.inf, "must be at least 1")
limit = _between(0, math.inf, "must not be negative; 0: no limit of its own")
port = _between(0, 65_535, "must lie between 0 and 65535")
percent = _between(1, 100, "must lie between 1 and 100")
connections = _between(LEAST_CONNECTIONS, math.inf, f"must be at least {LEAST_CONNECTIONS}")
_attempts = _between(1, MOST_ATTEMPTS, f"must lie between 1 and {MOST_ATTEMPTS}, or be empty")


def rate(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if number != 0 and not 0.001 <= number <= 100_000:
        raise ValueError("must be 0, or lie between 0.001 and 100000 a second")
    return number


def share(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("must lie between 0 and 1, such as 0.1 for 10 %")
    return number


def tenant_or_none(value: str) -> str:
    """Returns "" for none."""
    if value and not _TENANT.fullmatch(value):
        raise ValueError("must have 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit")
    return value


def duration(value: str) -> float:
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("must be a duration such as 500ms, 5s, 2m, 1h or 30d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def period(value: str) -> float:
    if (seconds := duration(value)) < 1:
        raise ValueError("must be at least 1s")
    return seconds


def period_or_none(value: str) -> float:
    """Returns 0 for none."""
    if 0 < (seconds := duration(value)) < 1:
        raise ValueError("must be 0, or at least 1s")
    return seconds


def collector(value: str) -> str:
    """No message may hold the value: some collectors have a token in the path."""
    if value and not value.lower().startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://, such as http://127.0.0.1:4318")
    try:
        parts = urlsplit(value)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if value and (not has_host or "@" in parts.netloc or parts.query or parts.fragment):
        raise ValueError("must name a host, and no user, query or fragment; keys belong in OTEL_EXPORTER_OTLP_HEADERS")
    return value.rstrip("/")


def secrets(value: str) -> tuple[str, ...]:
    """No message may hold a secret."""
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    for secret in found:
        try:
            empty = secret.startswith("whsec_") and not b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            empty = True
        if empty:
            raise ValueError("after whsec_ there must be base64, such as `openssl rand -base64 32` prints")
    return found


def jwt_secret(value: str) -> str:
    if value and len(value.encode()) < LEAST_SECRET_BYTES:
        raise ValueError(f"must have at least {LEAST_SECRET_BYTES} bytes; `openssl rand -base64 32` prints one")
    return value


def metrics_token(value: str) -> str:
    if value and (len(value) < 16 or not value.isascii() or not value.isprintable() or " " in value):
        raise ValueError("give 16 characters or more, of ASCII and without spaces")
    return value


def claim(value: str) -> str:
    """Empty: not checked."""
    return value.strip()


def domains(value: str) -> AllowedDomains | None:
    """None if empty: any."""
    return parse_domains(value.split(",")) if value.strip() else None


def attempt_seconds(value: str) -> float | None:
    """None if empty: by type of job."""
    if not value.strip():
        return None
    seconds = duration(value)
    if not 0.1 <= seconds <= LONGEST_ATTEMPT_SECONDS:
        raise ValueError("must lie between 100ms and 24h, or be empty")
    return seconds


def attempts(value: str) -> int | None:
    """None if empty: by type of job."""
    return _attempts(value) if value.strip() else None


def origins(value: str) -> tuple[str, ...]:
    return tuple(_origin(part.strip().lower()) for part in value.split(",") if part.strip())


def _origin(text: str) -> str:
    """Returns an origin as browsers send it. Refuses one that would never match."""
    if "*" in text:
        raise ValueError("* would let every web page send requests for its visitors; list each origin")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise ValueError("must be origins such as https://app.example.com,http://localhost:3000 without a path")
    if (match[1], match[3]) in (("http", "80"), ("https", "443")):
        raise ValueError(f"leave out :{match[3]}, as browsers do")
    return text


def size(value: str) -> int:
    """Returns bytes. A KB has 1024 bytes, as for memory."""
    match = _SIZE.fullmatch(value.strip())
    found = 0 if match is None else int(float(match[1]) * 1024 ** _POWERS.get((match[2] or "").lower(), 0))
    if found < 1:
        raise ValueError("must be a size such as 2GB, 500MB, 1024KB or plain bytes")
    return found


def size_or_none(value: str) -> int | None:
    """None if empty."""
    return size(value) if value.strip() else None


def encryption_keys(value: str) -> tuple[Key, ...]:
    """No message may hold a key."""
    return parse_keys(value.split(","))


MOST_ALERT_URLS = 10


def alert_urls(value: str) -> tuple[str, ...]:
    """No message may hold a URL: it has tokens."""
    urls = tuple(value.split())
    if len(urls) > MOST_ALERT_URLS:
        raise ValueError(f"must be at most {MOST_ALERT_URLS} URLs")
    for number, url in enumerate(urls, 1):
        if problem := channel_url_problem(kind_of(url), url):
            raise ValueError(f"URL {number} {problem[0].lower()}{problem[1:]}")
    return urls


def heartbeat_url(value: str) -> str:
    """Empty: none. No message may hold the URL: it has a token."""
    if value.strip() and (problem := url_problem(value.strip())):
        raise ValueError(problem)
    return value.strip()


def switch(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "yes", "1", "false", "no", "0", ""):
        raise ValueError("must be true or false")
    return lowered in ("true", "yes", "1")


def networks(value: str) -> tuple[Network, ...] | Literal[True]:
    """True: any; empty: none."""
    lowered = value.strip().lower()
    if lowered in ("true", "yes", "1"):
        return True
    if lowered in ("false", "no", "0", ""):
        return ()
    try:
        return tuple(ip_network(part.strip()) for part in value.split(","))
    except ValueError:
        raise ValueError("must be true, false, or networks such as 10.0.0.0/8,192.168.1.0/24") from None


def database_url(value: str) -> str:
    """No message may hold a password."""
    if value and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql://, such as postgresql://user:password@host:5432/duetime")
    # Otherwise a part of the password could be taken for the name of the host or database, which are shown.
    parts = split_url(value)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if "@" in parts.path or parts.fragment or not all(_HOST.fullmatch(host) for host in hosts):
        raise ValueError("in a password, characters such as / @ : # ? must be written as %2F %40 %3A %23 %3F")
    return value


def roles(value: str) -> frozenset[str]:
    found = frozenset(part.strip().lower() for part in value.split(",") if part.strip())
    if not found or found - ROLES:
        raise ValueError(f"must be one or more of {', '.join(sorted(ROLES))}, with commas between")
    return found
