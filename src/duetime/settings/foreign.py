"""Settings that other schedulers have and Duetime has not: what each is called here, or why there is none.

Whoever brings a configuration along is told so. A name in duetime.toml or with DUETIME_ before it ends the start,
unless its value says what Duetime does anyway; a bare one in the environment may be another program's: it is warned of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ON = frozenset({"true", "yes", "on", "1"})


class Foreign(NamedTuple):
    advice: str
    harmless: frozenset[str] = frozenset()  # values that say what Duetime does anyway


FOREIGN: dict[str, Foreign] = {
    "HTTP_ADDR": Foreign("set HOST and PORT"),
    "MAX_CONCURRENT_JOBS": Foreign("set DISPATCHER_WORKERS, how many executions run at once"),
    "METRICS_ENABLED": Foreign("metrics are on; METRICS_PORT=0 turns them off", _ON),
    "RECONCILE_ENABLED": Foreign(
        "what an expired node left is always taken over; RECONCILE_INTERVAL says how often it is looked for", _ON
    ),
    "RECONCILE_THRESHOLD": Foreign(
        "an execution is taken over when its node's lease ends, not by its age; set NODE_LEASE_SECONDS"
    ),
    "JOB_INPROGRESS_TIMEOUT": Foreign(
        "an execution is taken over when the lease of its node or worker ends, and an attempt ends with its job's "
        "timeout_seconds; set NODE_LEASE_SECONDS, WORKER_LEASE_SECONDS or JOB_EXECUTION_TIMEOUT"
    ),
    "DISPATCH_MODE": Foreign(
        "executions are always stored before they run; set DATABASE_URL for several nodes", frozenset({"db"})
    ),
    "DB_POLL_INTERVAL": Foreign("nodes are told of new executions and do not poll for them; leave it out"),
    "TICK_INTERVAL": Foreign("the timer has no ticks: it waits for the next due instant; leave it out"),
    "SCHEDULER_POLL_INTERVAL": Foreign("the timer does not poll: it waits for the next due instant; leave it out"),
    "HEALTH_FAILURE_THRESHOLD": Foreign(
        "/health tells of the node's own parts, not of how jobs end; GET /api/v1/executions has that; leave it out"
    ),
}


def refusal(name: str, value: str) -> str | None:
    """What is wrong with a foreign setting that was meant for Duetime, as a sentence; None: it does no harm."""
    found = FOREIGN[name.upper()]
    if value.strip().lower() in found.harmless:
        return None
    return f"Duetime has no such setting: {found.advice}"


def list_unread(environment: Mapping[str, str]) -> list[str]:
    """One sentence for each foreign setting in the environment that has no DUETIME_ before it: it is not read."""
    return [
        f"{name} in the environment is not read: {sentence}"
        for name in FOREIGN
        if name in environment and (sentence := refusal(name, environment[name])) is not None
    ]
