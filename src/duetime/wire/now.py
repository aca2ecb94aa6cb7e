"""What the nodes do now: their load, the worst jobs of the last minutes, and who takes the places."""

from __future__ import annotations

import msgspec

from duetime.wire.words import TypeWord


class NodeNow(msgspec.Struct, frozen=True):
    """A node by its last report, `age_ms` ago; its own from memory. `loop_lag_ms`: of its event loop, the longest since
    the report before. `failing`: services whose last turn failed."""

    id: int
    name: str
    version: str = ""
    roles: list[str] = []
    standing: str = ""
    age_ms: int = 0
    shards: int = 0
    in_flight: int = 0
    limit: int = 0
    queued: int = 0
    due_buffer: int = 0
    unwritten: int = 0
    loop_lag_ms: float = 0.0
    clock_offset_ms: int | None = None
    failing: list[str] = []


class WorstJob(msgspec.Struct, frozen=True):
    """A job of the last 5 minutes. `failures`: failed attempts. `lateness_ms`: of its latest start; 0 if below 1 s."""

    job_id: str
    name: str
    type: TypeWord
    tenant: str = ""
    failures: int = 0
    lateness_ms: int = 0
    last_error: str | None = None


class Places(msgspec.Struct, frozen=True):
    """Executions that nodes hold now: `running`, and `waiting` for a place. `target`: null for all of the tenant."""

    tenant: str
    target: str | None = None
    running: int = 0
    waiting: int = 0


class Now(msgspec.Struct, frozen=True):
    """`nodes`: for the operator. `jobs`: the worst first. `tenants`, `targets`: those with most waiting first."""

    nodes: list[NodeNow] = []
    jobs: list[WorstJob] = []
    tenants: list[Places] = []
    targets: list[Places] = []
