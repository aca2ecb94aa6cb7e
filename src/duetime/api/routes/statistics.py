"""/api/v1/stats and /api/v1/observability: counts, rates, errors and durations, for admins."""

from __future__ import annotations

from typing import Annotated

from litestar import Controller, get
from litestar.params import Parameter

from duetime.api import backlog, figures, queries
from duetime.api.auth.access import find_job
from duetime.api.context import ApiContext
from duetime.api.queries import read_filter
from duetime.api.views import instant
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right, is_operator
from duetime.domain.instants import HOUR, SECOND
from duetime.domain.job import JobType
from duetime.domain.statistics import StatisticsQuery, bucket_width, finest_at
from duetime.wire.statistics import Histograms, ObservabilityMetrics, Stats

MOST_TYPES = len(JobType)
MOST_EXECUTIONS = 10_000
DEFAULT_SPAN = HOUR

Since = Annotated[str | None, Parameter(query="from", description="an hour before `to`, by default")]
Until = Annotated[str | None, Parameter(query="to", description="now, by default")]
# (Not None by default: the framework would read the text `null` as no value.)
Bucket = Annotated[
    int, Parameter(description="seconds; 0: so that there are about 60. Older ones may be longer", ge=0, le=2_678_400)
]


@get(
    "/stats", tags=["observability"], right=Right.ADMIN,
    summary="Jobs by status, executions by state, what is late, and what is due in the next hour",
)  # fmt: skip
async def get_stats(context: ApiContext, caller: Caller) -> Stats:
    if is_operator(caller, context.operator_tenant):
        return await backlog.count_all(context)
    return await figures.count(context, caller.tenant)


class ObservabilityController(Controller):
    path = "/observability"
    tags = ("observability",)

    @get(
        "/metrics", right=Right.ADMIN,
        summary="Rates, errors, durations and lateness over 1, 5 and 15 minutes, of the whole cluster",
    )  # fmt: skip
    async def get_metrics(self, context: ApiContext, caller: Caller) -> ObservabilityMetrics:
        whole = is_operator(caller, context.operator_tenant)
        spans = figures.windows_at(context.clock.now())
        longest = spans["15m"]
        rows = await figures.recent_rows(context, None if whole else caller.tenant, longest)
        return ObservabilityMetrics(
            "cluster" if whole else "tenant",
            instant(longest.until),
            figures.view_windows(rows, spans),
            figures.windows_by(rows, spans, "type", MOST_TYPES),
            figures.windows_by(rows, spans, "tenant", figures.MOST_TENANTS) if whole else {},
            await figures.list_nodes(context) if whole else [],
        )

    @get(
        "/histograms", right=Right.ADMIN,
        summary="Durations, lateness and outcomes by time, of the tenant's jobs",
    )  # fmt: skip
    async def get_histograms(
        self, context: ApiContext, caller: Caller, since: Since = None, until: Until = None,
        bucket: Bucket = 0, type: str | None = None,
    ) -> Histograms:  # fmt: skip
        kind = read_filter(type, JobType, "type")
        first_at, end_at = _span(context, since, until)
        width = _width(context, first_at, end_at, bucket)
        query = StatisticsQuery(since=first_at, until=end_at, tenant=caller.tenant, type=kind and str(kind))
        rows = await context.store.list_statistics(query)
        return Histograms(
            width // SECOND, "statistics", len(rows) >= query.limit,
            figures.view_buckets(figures.bucket_rows(rows, width)),
        )  # fmt: skip


@get(
    "/jobs/{job_id:str}/histograms", tags=["jobs"], right=Right.READ,
    summary="Durations, lateness and outcomes of a job by time",
)  # fmt: skip
async def get_job_histograms(
    context: ApiContext, caller: Caller, job_id: str, since: Since = None, until: Until = None, bucket: Bucket = 0,
) -> Histograms:  # fmt: skip
    await find_job(context, caller, job_id)
    first_at, end_at = _span(context, since, until)
    width = _width(context, first_at, end_at, bucket)
    query = StatisticsQuery(since=first_at, until=end_at, tenant=caller.tenant, subject=f"job:{job_id}")
    if rows := await context.store.list_statistics(query):
        found = figures.view_buckets(figures.bucket_rows(rows, width))
        return Histograms(width // SECOND, "statistics", len(rows) >= query.limit, found)
    ends = await context.store.list_ends(job_id, first_at, end_at, MOST_EXECUTIONS + 1, caller.tenant)
    found = figures.view_buckets(figures.bucket_ends(ends[:MOST_EXECUTIONS], width))
    return Histograms(width // SECOND, "executions", len(ends) > MOST_EXECUTIONS, found)


def _span(context: ApiContext, since: str | None, until: str | None) -> tuple[int, int]:
    end_at = queries.read_instant(until, "to")
    end_at = context.clock.now() if end_at is None else end_at
    first_at = queries.read_instant(since, "from")
    first_at = end_at - DEFAULT_SPAN if first_at is None else first_at
    if first_at >= end_at:
        raise InvalidRequest.at("/from", "must be before `to`")
    return first_at, end_at


def _width(context: ApiContext, since: int, until: int, bucket: int) -> int:
    wanted = bucket * SECOND or None
    return bucket_width(since, until, wanted, finest_at(since, context.clock.now()))
