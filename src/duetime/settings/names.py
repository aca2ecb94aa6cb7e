"""Advice on wrong names of settings, and on settings of other schedulers that Duetime does not have.

A foreign setting in duetime.toml, or with the prefix DUETIME_, prevents the start, unless Duetime always behaves like
its value. Without the prefix it may belong to another program, and causes a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from duetime.settings import BadSetting
from duetime.settings.table import SETTINGS

PREFIX = "DUETIME_"  # of the variables of the environment
CONFIG_FILE = "duetime.toml"

# Other variables with the prefix: those of the command line, and of the environment of scripts.
_OF_OTHER_PARTS = frozenset(
    {"URL", "TOKEN", "JOB_ID", "EXECUTION_ID", "ATTEMPT", "FENCING_TOKEN", "SCHEDULED_AT", "TRIGGER"}
)
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


def check_names(configured: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raises BadSetting for an unknown name in the file, and for a setting of another scheduler in either."""
    for name, value in configured.items():
        if name.upper() in FOREIGN:
            _check_foreign(name.upper(), value, CONFIG_FILE)
        elif name.upper() not in SETTINGS:
            raise BadSetting(f"{CONFIG_FILE}: unknown setting '{name}'; {_advice(name)}")
    for name in FOREIGN:
        if (given := environment.get(PREFIX + name)) is not None:
            _check_foreign(name, given, PREFIX + name)


def list_misspelt(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable whose name is close to a setting's. Others may belong to other programs."""
    sentences = []
    for given in sorted(environment):
        name = given.removeprefix(PREFIX)
        if name == given or name in SETTINGS or name in FOREIGN or name in _OF_OTHER_PARTS:
            continue
        if near := get_close_matches(name, SETTINGS, n=1, cutoff=0.75):
            sentences.append(f"{given} in the environment is not read: did you mean {PREFIX}{near[0]}?")
    return sentences


def _check_foreign(name: str, value: str, source: str) -> None:
    if (sentence := refusal(name, value)) is not None:
        raise BadSetting(f"{name}: '{value}' (from {source}) can't be used: {sentence}")


def _advice(name: str) -> str:
    near = get_close_matches(name.upper(), SETTINGS, n=1)
    return f"did you mean '{near[0].lower()}'?" if near else "`duetime config show` lists them all"
