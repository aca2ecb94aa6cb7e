"""Statistics: rates, errors and durations; histograms over time; and counts of jobs and executions."""

from __future__ import annotations

import msgspec

from duetime.wire.words import ABSENT, Instant


class Spread(msgspec.Struct, frozen=True):
    """How long something took, in ms. A percentile is at most 9 % too high; null if there is nothing to measure."""

    count: int = 0
    mean_ms: float | None = None
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None


class Rates(msgspec.Struct, frozen=True):
    """What ended within a window of `seconds`. `executions` completed or failed; `failed` includes timeouts.

    `per_second`: of executions. `errors` counts attempts by error type, and `skipped` instants by reason.
    """

    seconds: float
    executions: int = 0
    per_second: float = 0.0
    failed: int = 0
    failure_ratio: float = 0.0
    attempts: int = 0
    retried: int = 0
    cancelled: int = 0
    dead: int = 0
    errors: dict[str, int] = {}
    skipped: dict[str, int] = {}
    duration: Spread = Spread()
    lateness: Spread = Spread()


class Windows(msgspec.Struct, frozen=True, rename={"one": "1m", "five": "5m", "fifteen": "15m"}):
    one: Rates
    five: Rates
    fifteen: Rates


class NodeFigures(msgspec.Struct, frozen=True):
    """What a node last reported about itself."""

    id: int
    name: str
    version: str = ""
    roles: tuple[str, ...] = ()
    standing: str = ""
    shards: int = 0
    started_at: Instant = ABSENT
    reported_at: Instant = ABSENT
    in_flight: int = 0
    limit: int = 0
    queued: int = 0
    due_buffer: int = 0
    unwritten: int = 0
    loop_lag_ms: float = 0.0
    clock_offset_ms: int | None = None
    failing: tuple[str, ...] = ()


class ObservabilityMetrics(msgspec.Struct, frozen=True):
    """Rates of the whole cluster, up to `until`. `by_tenant` and `nodes` are for the operator only."""

    scope: str
    until: Instant
    total: Windows
    by_type: dict[str, Windows] = {}
    by_tenant: dict[str, Windows] = {}
    nodes: list[NodeFigures] = []


class Bars(msgspec.Struct, frozen=True):
    """A histogram: `bars` lists (upper bound in ms, number), without empty ones."""

    count: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    bars: list[tuple[float, int]] = []


class HistogramBucket(msgspec.Struct, frozen=True):
    at: Instant
    completed: int = 0
    failed: int = 0
    timeout: int = 0
    cancelled: int = 0
    retried: int = 0
    dead: int = 0
    skipped: dict[str, int] = {}
    errors: dict[str, int] = {}
    duration: Bars = ABSENT
    lateness: Bars = ABSENT


class Histograms(msgspec.Struct, frozen=True):
    """`source`: `statistics`, or `executions` for a job that has no statistics of its own.

    Then at most 10,000 of its latest executions were read; `is_capped` says whether there were more.
    """

    bucket_seconds: int
    source: str
    is_capped: bool = False
    buckets: list[HistogramBucket] = []


class TenantBacklog(msgspec.Struct, frozen=True):
    """Executions of a tenant that are in the ledger and do not run. `late`: as in `Stats`."""

    tenant: str
    queued: int = 0
    retrying: int = 0
    late: int = 0


class Stats(msgspec.Struct, frozen=True):
    """Counts of a tenant, or of all tenants for the operator. `late`: due, and not started for more than a second.

    If `…_is_capped`, so many are due (for the operator: of all tenants together) that counting them ended early.
    `tenants`: for the operator only, the ten with most executions that wait in the ledger.
    """

    jobs: dict[str, int]
    executions: dict[str, int]
    late: int = 0
    late_is_capped: bool = False
    due_next_hour: int = 0
    due_next_hour_is_capped: bool = False
    scope: str = "tenant"
    tenants: list[TenantBacklog] = []
