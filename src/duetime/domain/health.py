"""The rules of /health: the state of each component, the status that follows, and whether a node should get traffic.

    status      HTTP  when
    ok          200   every component is healthy
    degraded    200   work goes on: a component is degraded, or a service of the engine fails
    degraded    503   this node should get no traffic: it stops, or its lease is in doubt
    unhealthy   503   the database or the clock is unhealthy: nothing can be read, written or run here

What is the same for all nodes (a full store, failing targets) is never a reason for a 503: a load balancer would take
all nodes out at once. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from duetime.domain.lease import Standing
from duetime.domain.node_report import NodeFacts
from duetime.domain.statistics import Tally

HEALTHY = "healthy"
OK, DEGRADED, UNHEALTHY = "ok", "degraded", "unhealthy"
FAILURE_WINDOW = 300_000  # ms
FEWEST = 10  # executions in the window; the share of fewer says little
LONG_LAG_MS = 3_000.0  # a lease lapses after 5 s: a process that is so late may lose it
MOST_UNWRITTEN = 20_000  # results; the writer is far behind

VITAL = frozenset({"database", "clock"})  # unhealthy without them
OWN = frozenset({"lease", "stopping"})  # without them other nodes should get the traffic


class Verdict(NamedTuple):
    status: str
    takes_traffic: bool
    reason: str | None  # why it takes none


def judge(components: Mapping[str, str]) -> Verdict:
    """Decide from the components' states: `healthy`, or `degraded: …` or `unhealthy: …` with a sentence."""
    bad = {name: state for name, state in components.items() if state != HEALTHY}
    vital = [name for name, state in bad.items() if name in VITAL and state.startswith(UNHEALTHY)]
    own = [name for name in bad if name in OWN]
    reason = next((f"{name}: {bad[name]}" for name in [*vital, *own]), None)
    status = UNHEALTHY if vital else DEGRADED if bad else OK
    return Verdict(status, reason is None, reason)


def executions(tally: Tally, threshold: float) -> str:
    """Returns the state of how executions end. `tally`: of the last five minutes."""
    if tally.ended < FEWEST or tally.failure_ratio <= threshold:
        return HEALTHY
    return (
        f"degraded: {100 * tally.failure_ratio:.1f} % of {tally.ended:,} executions of the last 5 minutes failed, more "
        f"than HEALTH_FAILURE_THRESHOLD ({100 * threshold:g} %)"
    )


def event_loop(facts: NodeFacts) -> str:
    if facts.loop_lag_ms < LONG_LAG_MS:
        return HEALTHY
    return f"degraded: this process was {facts.loop_lag_ms / 1000:.1f} s late a moment ago: it needs more CPU"


def writer(facts: NodeFacts) -> str:
    if facts.unwritten < MOST_UNWRITTEN:
        return HEALTHY
    return f"degraded: {facts.unwritten:,} results wait to be written; the database is too slow"


def lease(standing: Standing) -> str:
    match standing:
        case Standing.TRUSTED:
            return HEALTHY
        case Standing.JOINED:
            return "degraded: this node has no lease yet; it fires nothing until it has one"
        case Standing.DOUBTFUL:
            return "degraded: this node could not renew its lease in time; it fires nothing until it can"
        case _:
            return "degraded: this node has lost its lease; it joins again as a new node"


def service(failure: str) -> str:
    """Returns the state of a service of the engine: other nodes, or its next turn, do its work."""
    return HEALTHY if failure == HEALTHY else f"degraded: {failure}"
