"""/health, /health/live and /health/ready, outside the base path: whether this node works. `domain.health` decides."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from duetime.api.auth.access import ANYONE
from duetime.api.context import ApiContext, ClusterState
from duetime.api.views import encode
from duetime.domain import health as rules
from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import DuetimeError
from duetime.domain.lease import ClockState, explain_clock, explain_unwatched, runs_housekeeping
from duetime.domain.statistics import StatisticsQuery, Tally, merged, window
from duetime.ports.store import Totals
from duetime.wire.health import Health, JobsHealth, Liveness, MemoryHealth, NodeHealth, Readiness

TALLY_SECONDS = 5.0
JSON = "application/json"


@get(
    "/health", tags=["health"], right=ANYONE,
    summary="ok, degraded or unhealthy, with what is wrong (verbose=true); 503 if this node should get no requests",
)  # fmt: skip
async def get_health(context: ApiContext, verbose: bool = False) -> Response[Any]:
    trouble = await context.store.check()
    load, totals, tally = Load(), None, Tally()
    if not trouble:
        load = await context.store.get_load()
        totals = await context.store.get_all_totals() if verbose else None
        tally = await _recent(context)
    components = _own_components(context, trouble)
    components["capacity"] = _capacity(context.limits.capacity, load)
    components["executions"] = rules.executions(tally, context.failure_threshold)
    verdict = rules.judge(components)
    health = Health(verdict.status, verdict.takes_traffic)
    if verbose:
        capacity = context.limits.capacity
        health = Health(
            verdict.status, verdict.takes_traffic, components, _memory(capacity, load), _jobs(capacity, load, totals),
            _node(context),
        )  # fmt: skip
    return _respond(health, verdict.takes_traffic)


@get("/health/live", tags=["health"], summary="200 while the process responds at all", right=ANYONE)
async def get_liveness() -> Liveness:
    return Liveness("ok")


@get(
    "/health/ready", tags=["health"], right=ANYONE,
    summary="200 if a load balancer should send requests to this node, else 503 with the reason",
)  # fmt: skip
async def get_readiness(context: ApiContext) -> Response[Any]:
    verdict = rules.judge(_own_components(context, await context.store.check()))
    return _respond(Readiness(verdict.takes_traffic, verdict.reason), verdict.takes_traffic)


HEALTH_ROUTES: list[ControllerRouterHandler] = [get_health, get_liveness, get_readiness]


def _respond(body: object, takes_traffic: bool) -> Response[Any]:
    return Response(encode(body), status_code=200 if takes_traffic else 503, media_type=JSON)


def _own_components(context: ApiContext, trouble: str | None) -> dict[str, str]:
    """Returns the states of what may differ from node to node."""
    cluster, facts = context.engine.cluster(), context.engine.facts()
    components = {
        "database": f"unhealthy: {trouble}" if trouble else rules.HEALTHY,
        "clock": _clock(cluster),
        "alerts": _alerts(cluster),
        "lease": rules.lease(cluster.standing),
        "event loop": rules.event_loop(facts),
        "writer": rules.writer(facts),
    }
    components |= {name: rules.service(failure) for name, failure in context.engine.health().items()}
    if context.engine.is_stopping():
        components["stopping"] = "degraded: this node is stopping: send requests to another one"
    return components


async def _recent(context: ApiContext) -> Tally:
    """Returns how executions of all tenants ended lately. Without statistics, nothing is known to be wrong."""

    async def read() -> Tally:
        of = window(context.clock.now(), rules.FAILURE_WINDOW)
        return merged(await context.store.list_statistics(StatisticsQuery(since=of.since, until=of.until)))

    try:
        return await context.moments.get("recent ends", TALLY_SECONDS, read)
    except DuetimeError:
        return Tally()


def _capacity(capacity: Capacity, load: Load) -> str:
    if not capacity.is_filling(load):
        return rules.HEALTHY
    return f"degraded: {capacity.utilization_percent(load):.1f} % of the capacity is used"


def _clock(cluster: ClusterState) -> str:
    if cluster.clock is ClockState.RIGHT:
        return rules.HEALTHY
    what = explain_clock(cluster.clock_offset or 0)
    if cluster.clock is ClockState.OFF:
        return f"degraded: {what}; let NTP keep both"
    return f"unhealthy: {what}; until it is right, nothing runs here and no changes are taken"


def _alerts(cluster: ClusterState) -> str:
    unwatched = explain_unwatched(cluster.view)
    return "healthy" if unwatched is None else f"degraded: {unwatched}"


def _memory(capacity: Capacity, load: Load) -> MemoryHealth:
    limit = capacity.most_bytes
    available = None if limit is None else max(0, limit - load.bytes)
    used = None if limit is None else round(100 * load.bytes / limit, 1)
    return MemoryHealth(load.bytes, limit, available, used, _resident_bytes())


def _jobs(capacity: Capacity, load: Load, totals: Totals | None) -> JobsHealth:
    limit = capacity.most_jobs
    by_status = {} if totals is None else totals.jobs
    return JobsHealth(load.jobs, limit, None if limit is None else max(0, limit - load.jobs), by_status)


def _node(context: ApiContext) -> NodeHealth:
    cluster, facts = context.engine.cluster(), context.engine.facts()
    return NodeHealth(
        facts.name, facts.version, facts.roles, cluster.standing, cluster.node, len(cluster.owned),
        runs_housekeeping(cluster.owned), facts.loop_lag_ms, cluster.clock_offset,
    )  # fmt: skip


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: only the peak is known
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
