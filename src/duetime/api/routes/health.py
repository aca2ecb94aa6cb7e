"""/health, outside the base path: whether this node works."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from litestar import Response, get

from duetime.api.auth.access import ANYONE
from duetime.api.context import ApiContext, ClusterState
from duetime.api.views import encode
from duetime.domain.capacity import Capacity, Load
from duetime.domain.lease import ClockState, explain_clock, explain_unwatched
from duetime.wire.health import Health, JobsHealth, MemoryHealth


@get("/health", tags=["health"], summary="ok, or degraded with what is wrong (verbose=true)", right=ANYONE)
async def get_health(context: ApiContext, verbose: bool = False) -> Response[Any]:
    trouble = await context.store.check()
    load = Load() if trouble else await context.store.get_load()
    components = {"database": f"unhealthy: {trouble}" if trouble else "healthy"}
    for name, failure in context.engine.health().items():
        components[name] = failure if failure == "healthy" else f"unhealthy: {failure}"
    components["clock"] = _clock(context.engine.cluster())
    components["alerts"] = _alerts(context.engine.cluster())
    works = not any(state.startswith("unhealthy") for state in components.values())
    capacity = context.limits.capacity
    used, is_full = capacity.utilization_percent(load), capacity.is_filling(load)
    components["capacity"] = f"degraded: {used:.1f} % of the capacity is used" if is_full else "healthy"
    is_ok = all(state == "healthy" for state in components.values())
    health = Health("ok" if is_ok else "degraded")
    if verbose:
        health = Health(health.status, components, _memory(capacity, load), _jobs(capacity, load))
    # A full store is no reason for a 503: it is full for all nodes, and clients need one to remove jobs.
    return Response(encode(health), status_code=200 if works else 503, media_type="application/json")


def _clock(cluster: ClusterState) -> str:
    if cluster.clock is ClockState.RIGHT:
        return "healthy"
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


def _jobs(capacity: Capacity, load: Load) -> JobsHealth:
    limit = capacity.most_jobs
    return JobsHealth(load.jobs, limit, None if limit is None else max(0, limit - load.jobs))


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: only the peak is known
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
