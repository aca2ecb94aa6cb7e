"""What stands out on the nodes: the worst jobs of the last minutes, and who takes the places now."""

from __future__ import annotations

import msgspec

from duetime.wire.words import TypeWord


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


class FailingTarget(msgspec.Struct, frozen=True):
    """A target that failed since it last succeeded. `target`: of another tenant only its scheme, host and port."""

    tenant: str
    target: str
    state: str
    failures: int = 0


class Now(msgspec.Struct, frozen=True):
    """`jobs`: the worst first. `tenants`, `targets`: those with most waiting first. `circuits`: open ones first."""

    jobs: list[WorstJob] = []
    tenants: list[Places] = []
    targets: list[Places] = []
    circuits: list[FailingTarget] = []
