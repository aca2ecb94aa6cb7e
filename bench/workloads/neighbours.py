"""Ten normal tenants, each with ten webhooks every second: how late these are with a hostile neighbour, and without.

Other processes keep the machine as busy in the run without the neighbour as it was in the run with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench import processes
from bench.arrivals import Sink, recurring_figures
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.machine import Busy
from bench.results import Kind, Result, measured, median_of
from duetime.api.auth.tokens import sign

TENANTS, EACH = 10, 10
ROUNDS = 3  # one stall of the disk makes a second late, and that decides the p99 of one round
SECONDS_BEFORE = 5
SECRET = "only for this benchmark, on loopback"

# A hostile neighbour: gets the node and the instant of its burst, starts before the first second, and yields a function
# that returns further figures when the run has ended.
Beside = Callable[[DuetimeNode, float], AbstractContextManager[Callable[[], dict[str, float]]]]


class Load:
    """How busy the machine was with the hostile neighbour: the run without it must be as busy."""

    share = 0.0


def measure(
    where: AbstractContextManager[str | None], sink: Sink, seconds: int, load: Load, beside: Beside | None,
    storing_seconds: float = 0.0, settings: dict[str, str] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Returns the normal tenants' lateness. `storing_seconds`: what `beside` may take before the first second."""
    sink.reset()
    run = f"fair{time.time_ns()}"
    environment = {"DUETIME_JWT_SECRET": SECRET, **(settings or {})}
    with (
        where as url,
        DuetimeNode(url, environment) as node,
        _as_busy(0 if beside else load.share),
    ):
        first_at = float(int(time.time() + 8 + storing_seconds))
        instants = [first_at + number for number in range(SECONDS_BEFORE + seconds)]
        with (beside or _nobody)(node, instants[SECONDS_BEFORE]) as further:
            window = {"start_at": instant(first_at - 0.5), "end_at": instant(instants[-1] + 0.5), "overlap": "allow"}
            for tenant in range(TENANTS):
                normal = (
                    webhook_job(n, sink.url(f"/{run}/{tenant}-{n}"), "* * * * * *", **window) for n in range(EACH)
                )
                node.add_batch(ndjson(normal), EACH, token(f"normal-{tenant}"))
            if time.time() > first_at - 0.5:
                raise RuntimeError("the first second came before all jobs were stored")
            time.sleep(instants[SECONDS_BEFORE] - time.time())
            busy, begun_cpu = Busy(), node.cpu_seconds()
            sink.wait_for(TENANTS * EACH * len(instants), idle_seconds=15, until=instants[-1] + 1)
            share, cpu = busy.share(), node.cpu_seconds() - begun_cpu
            figures = further()
        if beside:
            load.share = share
        arrivals = sink.arrivals(run)
    lateness = recurring_figures(arrivals, TENANTS * EACH, instants)
    return lateness | figures | {"busy_percent": share * 100, "node_cpu_seconds": cpu}


def in_turn(
    table: str, subject: str, loud: Callable[[], dict[str, float]], quiet: Callable[[], dict[str, float]]
) -> Iterator[Result]:
    """Measures with the hostile neighbour and without it in turn. Returns the medians of both."""
    note = f"the median of {ROUNDS} rounds"
    pairs = [
        (
            measured(table, subject, Kind.US, loud, note),
            measured(table, "Duetime, without it, the machine as busy", Kind.LIMIT, quiet, note),
        )
        for _ in range(ROUNDS)
    ]
    beside, without = map(median_of, zip(*pairs, strict=True))
    yield without
    yield beside


def token(tenant: str) -> str:
    claims = {"tenant": tenant, "user_id": "bench", "role": "admin", "tier": "enterprise"}
    return sign(SECRET, "duetime", "duetime", claims, time.time_ns() // 1_000_000, 3600)


@contextmanager
def _nobody(_: DuetimeNode, __: float) -> Iterator[Callable[[], dict[str, float]]]:
    yield dict


@contextmanager
def _as_busy(share: float) -> Iterator[None]:
    """Other processes that make the machine as busy as that."""
    count = (os.cpu_count() or 1) if share else 0
    command = [processes.PYTHON, "-m", "bench.burner", str(share)]
    children = [processes.start(command) for _ in range(count)]
    try:
        yield
    finally:
        for child in children:
            processes.stop(child)
