"""Ten normal tenants beside two that attack the node in every way they have, all at once.

Measured beside their lateness: how long the slowest `/health` took, and by how much the node's memory grew.
"""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

from bench import processes
from bench.duetime_node import DuetimeNode
from bench.postgres import postgres
from bench.results import Result
from bench.workloads import Setting
from bench.workloads.fairness import STORED_PER_SECOND, hostile_tenant
from bench.workloads.neighbours import Beside, Load, in_turn, token
from bench.workloads.neighbours import measure as measure_neighbours

ATTACKERS = ("a-hostile", "b-hostile")
STARTING_SECONDS = 5.0


def measure(setting: Setting) -> Iterator[Result]:
    scale = setting.scale
    for table, where in (("attack", nullcontext), ("pg-attack", postgres)):
        load = Load()

        def run(beside: Beside | None, where=where, load=load) -> dict[str, float]:
            storing = STARTING_SECONDS + scale.hostile / STORED_PER_SECOND if beside else 0
            return measure_neighbours(where(), setting.sink, scale.fair_seconds, load, beside, storing)

        yield from in_turn(table, "Duetime, under attack", partial(run, attackers(scale.hostile)), partial(run, None))


def attackers(due_at_once: int) -> Beside:
    @contextmanager
    def beside(node: DuetimeNode, due_at: float) -> Iterator[Callable[[], dict[str, float]]]:
        with ExitStack() as stack:
            stack.enter_context(hostile_tenant(due_at_once)(node, due_at))
            watch = stack.enter_context(Watch(node))
            command = [processes.PYTHON, "-m", "bench.attackers", str(node.port), *map(token, ATTACKERS)]
            child = processes.start(command, stdout=subprocess.PIPE)
            stack.callback(processes.stop, child)
            assert child.stdout is not None
            child.stdout.readline()
            yield watch.figures

    return beside


class Watch:
    """Asks for `/health` again and again, each time on a new connection, and looks at the memory of the node."""

    def __init__(self, node: DuetimeNode) -> None:
        self._node = node
        self._begun_with = node.rss_bytes()
        self._most_bytes = 0
        self._slowest = 0.0
        self._failed = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        grown = (self._most_bytes - self._begun_with) / 1e6
        return {"health_ms": self._slowest * 1000, "health_failed": self._failed, "grown_mb": grown}

    def _run(self) -> None:
        while not self._is_over.wait(0.2):
            self._most_bytes = max(self._most_bytes, self._node.rss_bytes())
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self._node.port, timeout=30)
            try:
                connection.request("GET", "/health")
                self._failed += connection.getresponse().status != 200
            except OSError:
                self._failed += 1
            finally:
                connection.close()
            self._slowest = max(self._slowest, time.perf_counter() - begun)
