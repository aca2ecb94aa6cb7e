"""/health: whether this node can do its work. Outside the base path, for load balancers and people."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from litestar import Response, get

from duetime.api.context import TENANT, ApiContext
from duetime.api.views import Health, encode
from duetime.ports.store import JobQuery


@get("/health", tags=["health"], summary="ok, or degraded with what is wrong (verbose=true)")
async def get_health(context: ApiContext, verbose: bool = False) -> Response[Any]:
    trouble = await context.store.check()
    components = {"database": f"unhealthy: {trouble}" if trouble else "healthy"}
    for name, failure in context.engine_health().items():
        components[name] = failure if failure == "healthy" else f"unhealthy: {failure}"
    healthy = all(state == "healthy" for state in components.values())
    health = Health("ok" if healthy else "degraded")
    if verbose:
        jobs = 0 if trouble else await context.store.count_jobs(JobQuery(TENANT))
        health = Health(health.status, components, {"current_bytes": _resident_bytes()}, {"current_count": jobs})
    return Response(encode(health), status_code=200 if healthy else 503, media_type="application/json")


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak is the best there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
