"""The endpoint of an execution, as a number: limits are counted by it, and it decides which workers may claim it.

The endpoint of a webhook is the scheme, host and port of its URL; of SQL, the connection; all scripts share one, and so
do all notices. Every node can run these. A Python function runs in a worker that has it, never in a node: its number is
negative, and only a claim that names the number gets it.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from duetime.domain.job import HttpJob, JobSpec, NoticeJob, PythonJob, SqlJob


@lru_cache(maxsize=4096)
def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")


SCRIPTS = _number("script:")
NOTICES = _number("notice:")


def endpoint_of(spec: JobSpec, tenant: str) -> int:
    match spec:
        case HttpJob():
            return endpoint_of_url(spec.payload.url)
        case SqlJob():
            return endpoint_of_connection(tenant, spec.payload.connection)
        case PythonJob():
            return endpoint_of_function(tenant, spec.payload.function)
        case NoticeJob():
            return NOTICES
        case _:
            return SCRIPTS


def target_of(spec: JobSpec) -> str:
    """Returns what an operator reads for the endpoint: never a path or a query, which may hold secrets."""
    match spec:
        case HttpJob():
            return origin_of(spec.payload.url)
        case SqlJob():
            return f"connection {spec.payload.connection}"
        case PythonJob():
            return f"function {spec.payload.function}"
        case _:
            return "scripts"


def origin_of(url: str) -> str:
    """Returns scheme, host and port."""
    end = url.find("/", 8)  # after the slashes of http:// or https://
    origin = url if end < 0 else url[:end]
    return (origin.split("?", 1)[0] if "?" in origin else origin).lower()


def endpoint_of_url(url: str) -> int:
    return _number(origin_of(url))


def endpoint_of_connection(tenant: str, connection: str) -> int:
    return _number(f"sql:{tenant}:{connection}")


def endpoint_of_function(tenant: str, function: str) -> int:
    return -1 - _number(f"python:{tenant}:{function}")


def needs_worker(endpoint: int) -> bool:
    """Returns whether only a worker may claim the execution, and no node."""
    return endpoint < 0
