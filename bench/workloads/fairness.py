"""Ten normal tenants beside a hostile one: how late theirs are with it, and without it on a machine as busy.

The hostile tenant has 20 hosts that never answer and 100,000 webhooks for them, due at one instant in the middle of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from bench import processes
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.postgres import postgres
from bench.results import Result
from bench.workloads import Setting
from bench.workloads.neighbours import Beside, Load, in_turn, token
from bench.workloads.neighbours import measure as measure_neighbours

HOSTS = 20
STORED_PER_SECOND = 20_000  # at least


def measure(setting: Setting) -> Iterator[Result]:
    scale = setting.scale
    for table, where in (("fairness", nullcontext), ("pg-fairness", postgres)):
        load = Load()

        def run(beside: Beside | None, where=where, load=load) -> dict[str, float]:
            storing = scale.hostile / STORED_PER_SECOND if beside else 0
            return measure_neighbours(where(), setting.sink, scale.fair_seconds, load, beside, storing)

        yield from in_turn(
            table, "Duetime, beside a hostile tenant", partial(run, hostile_tenant(scale.hostile)), partial(run, None)
        )


def hostile_tenant(count: int) -> Beside:
    @contextmanager
    def beside(node: DuetimeNode, due_at: float) -> Iterator[Callable[[], dict[str, float]]]:
        with _hanging() as ports:
            jobs = (
                webhook_job(n, f"http://127.0.0.1:{ports[n % HOSTS]}/", instant(due_at), timeout_seconds=30)
                for n in range(count)
            )
            node.add_batch(ndjson(jobs), count, token("a-hostile"))
            yield dict

    return beside


@contextmanager
def _hanging() -> Iterator[list[int]]:
    child = processes.start([processes.PYTHON, "-m", "bench.hanging", str(HOSTS)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield [int(port) for port in child.stdout.readline().split()]
    finally:
        processes.stop(child)
