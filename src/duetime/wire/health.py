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
    current_count: int = 0
    limit: int | None = None
    available: int | None = None


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    status: str
    components: dict[str, str] = {}
    memory: MemoryHealth | None = None
    jobs: JobsHealth | None = None
