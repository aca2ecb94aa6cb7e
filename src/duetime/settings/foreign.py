"""Settings of other schedulers that Duetime does not have: their names here, or why there is none.

They help with a configuration of another scheduler. Such a name in duetime.toml, or with the prefix DUETIME_, prevents
the start, unless Duetime always behaves like its value. Without the prefix it may belong to another program, and causes
a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ON = frozenset({"true", "yes", "on", "1"})


class Foreign(NamedTuple):
    advice: str
    harmless: frozenset[str] = frozenset()  # values that Duetime always behaves like


FOREIGN: dict[str, Foreign] = {
    "HTTP_ADDR": Foreign("set HOST and PORT"),
    "MAX_CONCURRENT_JOBS": Foreign("set DISPATCHER_WORKERS, how many executions run at once"),
    "METRICS_ENABLED": Foreign("metrics are on; METRICS_PORT=0 turns them off", _ON),
    "RECONCILE_ENABLED": Foreign(
        "executions of lost nodes are always taken over; RECONCILE_INTERVAL is how often", _ON
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
    "DB_POLL_INTERVAL": Foreign("nodes are notified of new executions and do not poll for them; leave it out"),
    "TICK_INTERVAL": Foreign("the timer has no ticks: it waits for the next due instant; leave it out"),
    "SCHEDULER_POLL_INTERVAL": Foreign("the timer does not poll: it waits for the next due instant; leave it out"),
    "HEALTH_FAILURE_THRESHOLD": Foreign(
        "/health reports on the node, not on executions; use GET /api/v1/executions; leave it out"
    ),
}


def refusal(name: str, value: str) -> str | None:
    """Returns a sentence about a foreign setting that was intended for Duetime, or None if it is harmless."""
    found = FOREIGN[name.upper()]
    if value.strip().lower() in found.harmless:
        return None
    return f"Duetime has no such setting: {found.advice}"


def list_unread(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each foreign setting in the environment without the prefix DUETIME_. It is not read."""
    return [
        f"{name} in the environment is not read: {sentence}"
        for name in FOREIGN
        if name in environment and (sentence := refusal(name, environment[name])) is not None
    ]
