"""What a job is: what to run, when, and with which policies.

`JobSpec` is what a person writes and what the store keeps; every field but three has a default. Bounds that a type can
say stand in the type; the rest is in `validation.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value object that a person writes: unknown fields are refused."""


class JobStatus(StrEnum):
    PENDING = "PENDING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"


class JobType(StrEnum):
    HTTP_REQUEST = "http_request"
    SCRIPT = "script"
    SQL_QUERY = "sql_query"
    PYTHON = "python"


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
HttpStatus = Annotated[int, Meta(ge=100, le=599)]


class HttpRequest(Fields, frozen=True, omit_defaults=True):
    """`body`: a string is sent as it is, any other JSON value as JSON, null not at all.

    `secret`: JSON pointers such as /body/token to what is secret beside all header values (`secrets.py`).
    """

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    method: Method = "POST"
    headers: dict[str, Annotated[str, Meta(max_length=24_000)]] = {}  # sealed; what people send has its own bound
    body: Any = None
    expect_status: Annotated[tuple[HttpStatus, ...], Meta(max_length=50)] = ()  # empty: any 2xx
    secret: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=20)] = ()


class RetryPolicy(Fields, frozen=True):
    """How often and how long after a failure an execution is tried again. `delays` gives the waits outright."""

    max_retries: Annotated[int, Meta(ge=0, le=100)] | None = None
    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    initial_delay_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    backoff_factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    max_delay_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 3600.0
    delays: Annotated[tuple[Annotated[float, Meta(ge=0, le=604_800)], ...], Meta(max_length=100)] = ()


class CatchUp(Fields, frozen=True):
    """What becomes of instants that passed while nobody could run them."""

    policy: Literal["all", "latest", "skip"] = "latest"
    window_seconds: Annotated[int, Meta(ge=0, le=31_536_000)] = 3600
    max_runs: Annotated[int, Meta(ge=1, le=1000)] = 100


class Dst(Fields, frozen=True):
    """What becomes of local times that don't exist (gap) or exist twice (overlap) when clocks change."""

    gap: Literal["shift", "skip"] = "shift"
    overlap: Literal["first", "last", "both"] = "first"


class Overlap(StrEnum):
    """What happens to a due instant while an earlier execution of the same job is still open."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


Label = Annotated[str, Meta(min_length=1, max_length=255)]


class JobSpec(Fields, frozen=True, omit_defaults=True):
    """Defaults are not stored: a million rows would repeat them."""

    name: Label
    schedule: Annotated[str, Meta(min_length=1, max_length=512)]
    payload: HttpRequest
    type: JobType = JobType.HTTP_REQUEST
    description: Annotated[str, Meta(max_length=2000)] = ""
    key: Label | None = None
    timezone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    priority: Annotated[int, Meta(ge=0, le=9)] = 5
    start_at: str | None = None
    end_at: str | None = None
    max_runs: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    catch_up: CatchUp = CatchUp()
    overlap: Overlap = Overlap.SKIP
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    dst: Dst = Dst()
    tags: Annotated[dict[Label, Annotated[str, Meta(max_length=255)]], Meta(max_length=50)] = {}
