"""The health of a node."""

from __future__ import annotations

import msgspec


class MemoryHealth(msgspec.Struct, frozen=True):
    """Memory of all definitions of jobs, and its limit. (`resident_bytes`: memory of the process.)"""

    current_bytes: int = 0
    limit_bytes: int | None = None
    available_bytes: int | None = None
    utilization_percent: float | None = None
    resident_bytes: int = 0


class JobsHealth(msgspec.Struct, frozen=True):
    """`by_status`: jobs of all tenants."""

    current_count: int = 0
    limit: int | None = None
    available: int | None = None
    by_status: dict[str, int] = {}


class NodeHealth(msgspec.Struct, frozen=True):
    """The node that responds. `term`: its id, a new one for each lease."""

    name: str
    version: str
    roles: tuple[str, ...]
    standing: str
    term: int
    owned_shards: int
    runs_housekeeping: bool
    loop_lag_ms: float
    clock_offset_ms: int | None


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """`status`: `ok`, `degraded` or `unhealthy`. `takes_traffic`: whether the response is 200, and not 503."""

    status: str
    takes_traffic: bool = True
    components: dict[str, str] = {}
    memory: MemoryHealth | None = None
    jobs: JobsHealth | None = None
    node: NodeHealth | None = None


class Readiness(msgspec.Struct, frozen=True):
    """Whether a load balancer should send requests to this node. `reason`: why not."""

    is_ready: bool
    reason: str | None = None


class Liveness(msgspec.Struct, frozen=True):
    status: str
