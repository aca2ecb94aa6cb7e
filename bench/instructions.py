"""What a change costs in instructions, which no other work on the machine changes: a node of each checkout in valgrind.

    python -m bench.instructions ../older [--only w1-single,w1-batch,w2]

Needs valgrind (Debian's package). Both are counted at the same time, since timing decides how many creates share a
commit and how often a node wakes up: go by the ratio of one run, never by counts of two. Fewer instructions are not
always less time: system calls count as nothing here, and neither do misses of the cache. `bench.turns` measures time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import loadgen, processes
from bench.arrivals import Sink
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.turns import BODY
from bench.workloads.creates import FAR, TARGET

CREATES, BATCH, BURST = 1500, 5000, 3000
BURST_LEAD_SECONDS = 25.0  # a node in valgrind stores them slowly
LAST_RESULTS_SECONDS = 4.0  # in which the last results are recorded


class CountedNode(DuetimeNode):
    """Its instructions are counted inside `counting`."""

    def __init__(self, python: Path) -> None:
        super().__init__(settings={"PYTHONHASHSEED": "0"}, python=python)
        self._out = self.folder / "callgrind.out"
        callgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self._out}"]
        self.runs_in = [*callgrind, str(python)]
        self.instructions = 0

    def stop(self) -> None:
        self.kill()  # it has nothing to save, and stops slowly

    @contextmanager
    def counting(self, warm_up: Callable[[], object] = lambda: None) -> Iterator[None]:
        """`warm_up` runs before: valgrind translates code when it first sees it."""
        self._control("--instr=on")
        warm_up()
        self._control("--zero")
        yield
        self._control("--dump")
        dumps = sorted(self._out.parent.glob(f"{self._out.name}.*"))
        totals = re.findall(r"^totals: (\d+)", dumps[-1].read_text(errors="replace"), re.MULTILINE)
        self.instructions = int(totals[-1])

    def _control(self, what: str) -> None:
        assert self.child is not None
        subprocess.run(["callgrind_control", what, str(self.child.pid)], check=True, capture_output=True)


def _creates(node: CountedNode) -> float:
    def load(count: int) -> None:
        loaded = loadgen.run(loadgen.Load(port=node.port, path="/api/v1/jobs", body=BODY, count=count))
        if set(loaded.statuses) != {"201"}:
            raise RuntimeError(f"creates were not all answered 201: {loaded.statuses}")

    load(600)
    with node.counting(lambda: load(64)):
        load(CREATES)
    return node.instructions / CREATES


def _batch(node: CountedNode) -> float:
    def load(count: int) -> None:
        node.add_batch(ndjson(webhook_job(number, TARGET, FAR) for number in range(count)), count)

    load(500)
    with node.counting(lambda: load(100)):
        load(BATCH)
    return node.instructions / BATCH


def _burst(node: CountedNode) -> float:
    """From a second before the due instant until the last result is recorded."""
    sink = Sink()
    due_at = float(int(time.time() + BURST_LEAD_SECONDS))
    jobs = ndjson(webhook_job(n, sink.url(f"/w2/{n}"), instant(due_at)) for n in range(BURST))
    node.add_batch(jobs, BURST)
    if time.time() > due_at - 3:
        raise RuntimeError("the burst was due before all of it was stored")
    time.sleep(due_at - 3 - time.time())
    with node.counting(lambda: time.sleep(1)):
        sink.wait_for(BURST, idle_seconds=60, until=due_at)
        time.sleep(LAST_RESULTS_SECONDS)
    if sink.count() < BURST:
        raise RuntimeError("some of the burst is missing")
    sink.stop()
    return node.instructions / BURST


MEASURES: dict[str, Callable[[CountedNode], float]] = {"w1-single": _creates, "w1-batch": _batch, "w2": _burst}


def measure(name: str, checkout: Path) -> float:
    """Instructions for each job."""
    with CountedNode(checkout / ".venv" / "bin" / "python") as node:
        return MEASURES[name](node)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__.partition("\n")[0])
    parser.add_argument("older", type=Path, help="the older checkout, with its .venv")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MEASURES), help="e.g. w1-single,w2")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("this needs valgrind: apt-get install valgrind", file=sys.stderr)
        return 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in options.only:
        with ThreadPoolExecutor(2) as both:
            old, new = both.map(partial(measure, name), (options.older, processes.ROOT))
        print(f"{name}: {new:,.0f} instructions a job, {new / old - 1:+.1%} of {old:,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
