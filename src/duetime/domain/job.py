"""The definition of a job: what to run, when, and with which policies.

`JobSpec` is what the store keeps: one struct for each type of job, distinguished by `type`. `UserSpec` is what users
write: Duetime itself creates notices. Only three fields are required. Types express most bounds; `validation.py` checks
the others.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from duetime.domain.payloads import Fields, HttpRequest, Label, Notice, PythonCall, Script, SqlQuery


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
    NOTICE = "notice"  # to people, about an alert; users can't create it


class RetryPolicy(Fields, frozen=True):
    """How often and how long after a failure an execution is tried again. `delays` lists the waits themselves."""

    max_retries: Annotated[int, Meta(ge=0, le=100)] | None = None  # None: as many as `delays`, or by `defaults`
    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    initial_delay_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    backoff_factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    max_delay_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 3600.0
    delays: Annotated[tuple[Annotated[float, Meta(ge=0, le=604_800)], ...], Meta(max_length=100)] = ()


class CatchUp(Fields, frozen=True):
    """What happens to instants that passed while no node could run them."""

    policy: Literal["all", "latest", "skip"] = "latest"
    window_seconds: Annotated[int, Meta(ge=0, le=31_536_000)] = 3600
    max_runs: Annotated[int, Meta(ge=1, le=1000)] = 100


class Dst(Fields, frozen=True):
    """What happens to local times that don't exist (gap) or exist twice (overlap) when clocks change."""

    gap: Literal["shift", "skip"] = "shift"
    overlap: Literal["first", "last", "both"] = "first"


class Overlap(StrEnum):
    """What happens to a due instant while an earlier execution of the same job is still open."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class Webhooks(Fields, frozen=True, omit_defaults=True):
    """URLs that receive a notification of how an execution ended: a request, which is sent as a job."""

    on_success: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None
    on_failure: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None


# Text such as 25h: `domain.durations` parses it, and `validation` has its bounds.
Span = Annotated[str, Meta(min_length=1, max_length=16)]
Percent = Annotated[float, Meta(ge=50, le=99.999)]


class Slo(Fields, frozen=True):
    """Objectives: what the job promises of its executions over the last `window`; see domain/objectives.py.

    Lateness: `on_time` percent of them start within `lateness_seconds` of their instant. Success: `success` percent of
    them succeed.
    """

    lateness_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    on_time: Percent = 99.0
    success: Percent | None = None
    window: Span = "30d"


class Delivery(StrEnum):
    """Whether an attempt that may have been lost on the way is made again."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


Tags = Annotated[dict[Label, Annotated[str, Meta(max_length=255)]], Meta(max_length=50)]


class Definition(Fields, frozen=True, omit_defaults=True, tag_field="type"):
    """The fields of jobs of all types. Defaults are not stored: a million rows would repeat them."""

    type: ClassVar[JobType]

    name: Label
    schedule: Annotated[str, Meta(min_length=1, max_length=512)]
    description: Annotated[str, Meta(max_length=2000)] = ""
    key: Label | None = None
    timezone: Annotated[str, Meta(min_length=1, max_length=64)] = "UTC"
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] | None = None  # of an attempt; None: by `defaults`
    priority: Annotated[int, Meta(ge=0, le=9)] = 5
    start_at: str | None = None
    end_at: str | None = None
    max_runs: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    catch_up: CatchUp = CatchUp()
    overlap: Overlap = Overlap.SKIP
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    dst: Dst = Dst()
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    after: Annotated[tuple[Label, ...], Meta(max_length=20)] = ()  # keys or ids of jobs, whose ends start this one
    on: Literal["success", "failure", "any"] = "success"  # which ends of those count
    webhooks: Webhooks = Webhooks()
    slo: Slo | None = None
    expect_every: Span | None = None  # the longest time without a successful execution; longer is an alert
    tags: Tags = msgspec.field(default_factory=dict)


class HttpJob(Definition, frozen=True, omit_defaults=True, kw_only=True, tag="http_request"):
    type: ClassVar[JobType] = JobType.HTTP_REQUEST

    payload: HttpRequest


class ScriptJob(Definition, frozen=True, omit_defaults=True, kw_only=True, tag="script"):
    type: ClassVar[JobType] = JobType.SCRIPT

    payload: Script


class SqlJob(Definition, frozen=True, omit_defaults=True, kw_only=True, tag="sql_query"):
    type: ClassVar[JobType] = JobType.SQL_QUERY

    payload: SqlQuery


class PythonJob(Definition, frozen=True, omit_defaults=True, kw_only=True, tag="python"):
    type: ClassVar[JobType] = JobType.PYTHON

    payload: PythonCall


class NoticeJob(Definition, frozen=True, omit_defaults=True, kw_only=True, tag="notice"):
    type: ClassVar[JobType] = JobType.NOTICE

    payload: Notice


UserSpec = HttpJob | ScriptJob | SqlJob | PythonJob
JobSpec = UserSpec | NoticeJob
USER_TYPES = (JobType.HTTP_REQUEST, JobType.SCRIPT, JobType.SQL_QUERY, JobType.PYTHON)
