"""Builds the responses about statistics (`wire.statistics`) from rows, and reads the rows they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from duetime.api.context import ApiContext
from duetime.api.views import instant
from duetime.domain.histogram import Histogram, upper_bound
from duetime.domain.instants import HOUR, SECOND
from duetime.domain.node_report import NodeReport
from duetime.domain.states import Trigger
from duetime.domain.statistics import (
    NO_TYPE,
    OTHERS,
    WINDOWS,
    StatisticsQuery,
    StatisticsRow,
    Tally,
    Window,
    bucket_of,
    grouped,
    in_window,
    merged,
    window,
)
from duetime.ports.store import EndRecord
from duetime.wire.statistics import Bars, HistogramBucket, NodeFigures, Rates, Spread, Stats, Windows

FRESH_SECONDS = 2.0
STATS_SECONDS = 5.0
MOST_TENANTS = 100  # in a response; the rest is summed
MOST_COUNTED = 100_000
LATE = SECOND
MOST_NODES = 1_000
MOST_SILENT = 20
SILENT = "silent"  # the standing of a node that has not reported lately


async def recent_rows(context: ApiContext, tenant: str | None, longest: Window) -> list[StatisticsRow]:
    """Returns the rows of a window; tenant None: of all tenants."""
    query = StatisticsQuery(since=longest.since, until=longest.until, tenant=tenant)
    return await context.moments.get(
        ("statistics", tenant, longest), FRESH_SECONDS, lambda: context.store.list_statistics(query)
    )


def windows_at(now: int) -> dict[str, Window]:
    return {name: window(now, length) for name, length in WINDOWS.items()}


def view_windows(rows: Sequence[StatisticsRow], spans: dict[str, Window]) -> Windows:
    return Windows(*(view_rates(merged(in_window(rows, of)), of) for of in spans.values()))


def windows_by(rows: Sequence[StatisticsRow], spans: dict[str, Window], field: str, most: int) -> dict[str, Windows]:
    """Returns figures by `type` or `tenant`: of those with most attempts; the rest is summed under OTHERS."""
    order = sorted(grouped(rows, field).items(), key=lambda one: (one[0] == OTHERS, -one[1].attempts, one[0]))
    kept = {name for name, _ in order[:most]}
    parts: dict[str, list[StatisticsRow]] = {name: [] for name, _ in order[:most]}
    for row in rows:
        name = getattr(row, field)
        parts.setdefault(name if name in kept else OTHERS, []).append(row)
    return {name: view_windows(some, spans) for name, some in parts.items() if name != NO_TYPE}


def view_rates(tally: Tally, of: Window) -> Rates:
    return Rates(
        of.seconds, tally.ended, round(tally.ended / of.seconds, 3), tally.failures, round(tally.failure_ratio, 4),
        tally.attempts, tally.retried, tally.cancelled, tally.dead, tally.errors, tally.skipped,
        _spread(tally.duration), _spread(tally.lateness),
    )  # fmt: skip


def _spread(histogram: Histogram) -> Spread:
    count = histogram.count
    if not count:
        return Spread()
    p50, p95, p99 = (histogram.quantile(share) for share in (0.5, 0.95, 0.99))
    return Spread(count, round(histogram.total / count, 1), p50, p95, p99)


def view_node(report: NodeReport) -> NodeFigures:
    it = report.facts
    return NodeFigures(
        report.node, it.name, it.version, it.roles, it.standing, it.shards, instant(it.started_at), instant(report.at),
        it.in_flight, it.limit, it.queued, it.due_buffer, it.unwritten, it.loop_lag_ms, it.clock_offset_ms, it.failing,
    )  # fmt: skip


async def list_nodes(context: ApiContext) -> list[NodeFigures]:
    """Returns what the living nodes last reported, and which nodes are silent although they did not leave.

    A node that is alone reports nothing: it is asked itself.
    """
    now = context.clock.now()
    known = await context.store.list_node_reports(MOST_NODES)
    reports = [one for one in known if one.is_fresh(now)]
    own = context.engine.cluster().node
    if all(report.node != own for report in reports):
        reports.append(NodeReport(own, now, context.engine.facts()))
    found = [*map(view_node, reports), *_silent(known, {report.facts.name for report in reports})]
    return sorted(found, key=lambda node: node.name)


def _silent(known: Iterable[NodeReport], names: set[str]) -> list[NodeFigures]:
    """Returns nodes of other names, by their latest report, without figures: what they held is with other nodes."""
    latest = {one.facts.name: one for one in sorted(known, key=lambda one: one.at) if one.facts.name not in names}
    return [
        NodeFigures(
            one.node, one.facts.name, one.facts.version, one.facts.roles, SILENT,
            started_at=instant(one.facts.started_at), reported_at=instant(one.at),
        )
        for one in sorted(latest.values(), key=lambda one: one.at, reverse=True)[:MOST_SILENT]
    ]  # fmt: skip


# Histograms over time


def bucket_rows(rows: Iterable[StatisticsRow], bucket: int) -> dict[int, Tally]:
    found: dict[int, Tally] = {}
    for row in rows:
        found.setdefault(bucket_of(row.bucket_at, bucket), Tally()).merge(row.tally)
    return found


def bucket_ends(ends: Iterable[EndRecord], bucket: int) -> dict[int, Tally]:
    """Returns tallies of executions: there is no count of their attempts."""
    found: dict[int, Tally] = {}
    for end in ends:
        tally = found.setdefault(bucket_of(end.ended_at, bucket), Tally())
        name = end.state.lower()
        setattr(tally, name, getattr(tally, name) + 1)
        if end.started_at is not None:
            tally.duration.add([end.ended_at - end.started_at])
            if end.trigger is not Trigger.RETRY:
                tally.lateness.add([end.started_at - end.scheduled_at])
    return found


def view_buckets(found: dict[int, Tally]) -> list[HistogramBucket]:
    return [
        HistogramBucket(
            instant(at), it.completed, it.failed, it.timeout, it.cancelled, it.retried, it.dead, it.skipped, it.errors,
            _bars(it.duration), _bars(it.lateness),
        )
        for at, it in sorted(found.items())
    ]  # fmt: skip


def _bars(histogram: Histogram) -> Bars:
    p50, p95, p99 = (histogram.quantile(share) for share in (0.5, 0.95, 0.99))
    bars = [(0.0, histogram.zero)] if histogram.zero else []
    bars += [(round(upper_bound(bucket) * SECOND, 3), number) for bucket, number in sorted(histogram.buckets.items())]
    return Bars(histogram.count, p50, p95, p99, bars)


# Counts


async def count(context: ApiContext, tenant: str) -> Stats:
    """Returns the counts of a tenant, at most a few seconds old."""
    return await context.moments.get(("stats", tenant), STATS_SECONDS, lambda: _count(context, tenant))


async def _count(context: ApiContext, tenant: str) -> Stats:
    now, store = context.clock.now(), context.store
    totals = await store.get_totals(tenant)
    waiting = await store.count_waiting(tenant, now - LATE, MOST_COUNTED)
    overdue, is_part = await _due_of(context, tenant, "overdue", 0, now - LATE)
    coming, coming_is_part = await _due_of(context, tenant, "coming", now, now + HOUR)
    return Stats(
        totals.jobs, totals.executions,
        waiting + overdue, waiting >= MOST_COUNTED or is_part,
        coming, coming_is_part,
    )  # fmt: skip


async def _due_of(context: ApiContext, tenant: str, name: str, since: int, until: int) -> tuple[int, bool]:
    """Returns how many timers of the tenant are due, and whether that is a part of them.

    If all tenants together have too many to count, the tenant's own jobs are looked at: nobody may learn how many the
    others have, or get a wrong number because of them.
    """
    found = await due(context, name, since, until)
    if not is_capped(found):
        return found.get(tenant, 0), False
    return await context.store.count_due_timers_of(tenant, since, until, MOST_COUNTED)


async def due(context: ApiContext, name: str, since: int, until: int) -> dict[str, int]:
    """Returns due timers by tenant: one read serves all tenants."""
    return await context.moments.get(
        name, STATS_SECONDS, lambda: context.store.count_due_timers(since, until, MOST_COUNTED)
    )


def is_capped(found: dict[str, int]) -> bool:
    return sum(found.values()) >= MOST_COUNTED
