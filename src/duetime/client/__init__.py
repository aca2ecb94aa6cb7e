"""The Python client of Duetime, for threads (`Client`) and for an event loop (`AsyncClient`), with the same methods.

    with Client("http://127.0.0.1:8080", token) as duetime:
        job = duetime.create_job({"name": "report", "schedule": "@daily", "payload": {"url": "https://…"}})
        for execution in duetime.job_executions(job.job_id):
            print(execution.state)

It must not import more of Duetime than the domain and `wire`.
"""

from typing import TYPE_CHECKING, Any

from duetime.client.errors import (
    BatchInterrupted,
    ClientClosed,
    ComeBack,
    Conflict,
    DuetimeError,
    Forbidden,
    IdempotencyKeyReused,
    InsufficientStorage,
    InvalidRequest,
    InvalidSchedule,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    PreconditionFailed,
    Problem,
    QuotaExceeded,
    RateLimited,
    ServerAway,
    ServerDefect,
    Unauthorized,
    UnknownAnswer,
)

if TYPE_CHECKING:
    from duetime.client.aio import AsyncClient, AsyncListing
    from duetime.client.sync import Client, Listing

__all__ = [
    "AsyncClient", "AsyncListing", "BatchInterrupted", "Client", "ClientClosed", "ComeBack", "Conflict", "DuetimeError",
    "Forbidden", "IdempotencyKeyReused", "InsufficientStorage", "InvalidRequest", "InvalidSchedule", "Listing",
    "MethodNotAllowed", "NotFound", "Overloaded", "PayloadTooLarge", "PreconditionFailed", "Problem", "QuotaExceeded",
    "RateLimited", "ServerAway", "ServerDefect", "Unauthorized", "UnknownAnswer",
]  # fmt: skip

_HOMES = {
    "AsyncClient": "duetime.client.aio", "AsyncListing": "duetime.client.aio",
    "Client": "duetime.client.sync", "Listing": "duetime.client.sync",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports a client when it is used: the command line needs neither of them, nor their HTTP library."""
    if name not in _HOMES:
        raise AttributeError(f"module 'duetime.client' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
