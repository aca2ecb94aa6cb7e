"""Python functions: no-ops that are due at one instant, with two worker processes that wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

import msgspec

from bench import limits, processes
from bench.arrivals import burst_figures
from bench.duetime_node import DuetimeNode
from bench.peers.catalogue import FUNCTION_PEERS
from bench.peers.run import burst
from bench.results import Kind, Result, measured, median_of
from bench.tally import Tally
from bench.workloads import Setting
from duetime import Duetime

ROUNDS = 3
PROCESSES = 2
LEAD_SECONDS = 4.0
APP = "bench.functions_app:app"


class Subject(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    measure: Callable[[], dict[str, float]]
    note: str = ""


def measure(setting: Setting) -> Iterator[Result]:
    """All subjects in turn, and all again: what disturbs the machine for a while disturbs each of them."""
    folder = processes.scratch("tally")
    subjects = list(_subjects(setting, Tally(folder)))
    rounds = [[measured("functions", s.name, s.kind, s.measure, s.note) for s in subjects] for _ in range(ROUNDS)]
    processes.remove(folder)
    yield from map(median_of, zip(*rounds, strict=True))


def _subjects(setting: Setting, tally: Tally) -> Iterator[Subject]:
    scale = setting.scale
    yield Subject("two processes on bare SQLite", Kind.LIMIT, partial(limits.bare_functions, tally, scale.burst))
    yield Subject("Duetime", Kind.US, partial(duetime, tally, scale.burst), f"the median of {ROUNDS} rounds, as of all")
    for peer in FUNCTION_PEERS if setting.peers else ():
        yield Subject(peer.name, Kind.PEER, partial(burst, peer, tally, peer.burst_of(scale)), peer.note)


def duetime(tally: Tally, count: int) -> dict[str, float]:
    tally.reset()
    with DuetimeNode() as node:
        workers = node.start_workers(APP, PROCESSES, tally.environment)
        due_at = float(int(time.time() + LEAD_SECONDS + count / 5_000))
        calls = ((number,) for number in range(count))
        Duetime(node.url).enqueue_many("noop", calls, at=datetime.fromtimestamp(due_at, UTC))
        if time.time() > due_at - 0.5:
            raise RuntimeError("the calls were due before all of them were stored")
        tally.wait_for(count, idle_seconds=10, until=due_at)
        processes.stop(workers, 40.0)
    return burst_figures(tally.arrivals("functions"), count, due_at)
