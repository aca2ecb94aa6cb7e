"""The Python client of Duetime, for threads (`Client`) and for an event loop (`AsyncClient`), with the same methods.

    with Client("http://127.0.0.1:8080", token) as duetime:
        job = duetime.create_job({"name": "report", "schedule": "@daily", "payload": {"url": "https://…"}})
        for execution in duetime.job_executions(job.job_id):
            print(execution.state)

It needs nothing of the server's code but the words of the domain.
"""

from duetime.client.aio import AsyncClient, AsyncListing
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
from duetime.client.sync import Client, Listing

__all__ = [
    "AsyncClient",
    "AsyncListing",
    "BatchInterrupted",
    "Client",
    "ClientClosed",
    "ComeBack",
    "Conflict",
    "DuetimeError",
    "Forbidden",
    "IdempotencyKeyReused",
    "InsufficientStorage",
    "InvalidRequest",
    "InvalidSchedule",
    "Listing",
    "MethodNotAllowed",
    "NotFound",
    "Overloaded",
    "PayloadTooLarge",
    "PreconditionFailed",
    "Problem",
    "QuotaExceeded",
    "RateLimited",
    "ServerAway",
    "ServerDefect",
    "Unauthorized",
    "UnknownAnswer",
]
