"""Ten normal tenants beside a hostile one: how late theirs are with it, and without it on a machine as busy.

Each normal tenant has ten webhooks every second. The hostile one has 20 hosts that never answer and 100,000 webhooks
for them, due at one instant in the middle of it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from bench import processes
from bench.arrivals import Sink, recurring_figures
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.machine import Busy
from bench.postgres import postgres
from bench.results import Kind, Result, measured
from bench.workloads import Setting
from duetime.api.tokens import sign

TENANTS, EACH = 10, 10
HOSTS = 20
SECONDS_BEFORE = 5
SECRET = "only for this benchmark, on loopback"
SETTINGS = {"DUETIME_JWT_SECRET": SECRET}


def measure(setting: Setting) -> Iterator[Result]:
    scale = setting.scale
    for table, where in (("fairness", nullcontext), ("pg-fairness", postgres)):
        load = Load()
        with_it = measured(
            table, "Duetime, beside a hostile tenant", Kind.US,
            lambda w=where, ld=load: _run(w(), setting.sink, scale.fair_seconds, scale.hostile, ld),
        )  # fmt: skip
        yield measured(
            table, "Duetime, without it, the machine as busy", Kind.LIMIT,
            lambda w=where, ld=load: _run(w(), setting.sink, scale.fair_seconds, 0, ld),
        )  # fmt: skip
        yield with_it


class Load:
    """How busy the machine was while the hostile tenant's were fired: the run without it must be as busy."""

    share = 0.0


def _run(
    where: AbstractContextManager[str | None], sink: Sink, seconds: int, hostile: int, load: Load
) -> dict[str, float]:
    sink.reset()
    run = f"fair{time.time_ns()}"
    with where as url, _hanging() as ports, DuetimeNode(url, SETTINGS) as node, _as_busy(0 if hostile else load.share):
        first_at = float(int(time.time() + 8 + hostile / 20_000))
        instants = [first_at + number for number in range(SECONDS_BEFORE + seconds)]
        if hostile:
            due_at = instant(instants[SECONDS_BEFORE])
            jobs = (
                webhook_job(n, f"http://127.0.0.1:{ports[n % HOSTS]}/", due_at, timeout_seconds=30)
                for n in range(hostile)
            )
            node.add_batch(ndjson(jobs), hostile, _token("a-hostile"))
        window = {"start_at": instant(first_at - 0.5), "end_at": instant(instants[-1] + 0.5), "overlap": "allow"}
        for tenant in range(TENANTS):
            normal = (webhook_job(n, sink.url(f"/{run}/{tenant}-{n}"), "* * * * * *", **window) for n in range(EACH))
            node.add_batch(ndjson(normal), EACH, _token(f"normal-{tenant}"))
        if time.time() > first_at - 0.5:
            raise RuntimeError("the first second came before all jobs were stored")
        time.sleep(instants[SECONDS_BEFORE] - time.time())
        busy, begun_cpu = Busy(), node.cpu_seconds()
        sink.wait_for(TENANTS * EACH * len(instants), idle_seconds=15, until=instants[-1] + 1)
        share, cpu = busy.share(), node.cpu_seconds() - begun_cpu
        if hostile:
            load.share = share
        arrivals = sink.arrivals(run)
    figures = recurring_figures(arrivals, TENANTS * EACH, instants)
    return figures | {"busy_percent": share * 100, "node_cpu_seconds": cpu}


@contextmanager
def _hanging() -> Iterator[list[int]]:
    child = processes.start([processes.PYTHON, "-m", "bench.hanging", str(HOSTS)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield [int(port) for port in child.stdout.readline().split()]
    finally:
        processes.stop(child)


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


def _token(tenant: str) -> str:
    claims = {"tenant": tenant, "user_id": "bench", "role": "admin", "tier": "enterprise"}
    return sign(SECRET, "duetime", "duetime", claims, time.time_ns() // 1_000_000, 3600)
