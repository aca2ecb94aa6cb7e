"""W2: a burst of webhooks due at one instant, all stored before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from bench import limits
from bench.arrivals import Sink, burst_figures
from bench.duetime_node import DuetimeNode, instant, pages, webhook_job
from bench.peers.catalogue import PEERS
from bench.peers.run import burst
from bench.results import Kind, Result, measured
from bench.workloads import Setting

LEAD_SECONDS = 8.0


def measure(setting: Setting) -> Iterator[Result]:
    sink, scale = setting.sink, setting.scale
    for name, client in (("Duetime's client in a bare loop", "duetime"), ("pyreqwest in a bare loop", "pyreqwest")):
        yield measured("w2", name, Kind.LIMIT, partial(limits.bare_client, client, sink, scale.burst))
    yield measured("w2", "Duetime", Kind.US, lambda: duetime(sink, scale.burst))
    for peer in PEERS if setting.peers else ():
        figures = partial(burst, peer, sink, peer.burst_of(scale))
        yield measured("w2", peer.name, Kind.PEER, figures, peer.note)


def duetime(sink: Sink, count: int, database_url: str | None = None) -> dict[str, float]:
    sink.reset()
    with DuetimeNode(database_url) as node:
        due_at = float(int(time.time() + LEAD_SECONDS + count / 10_000))
        jobs = [webhook_job(n, sink.url(f"/w2/{n}"), instant(due_at)) for n in range(count)]
        for body, size in pages(jobs):
            node.add_batch(body, size)
        if time.time() > due_at - 0.5:
            raise RuntimeError("the burst was due before all of it was stored")
        sink.wait_for(count, idle_seconds=10, until=due_at)
        return burst_figures(sink.arrivals("w2"), count, due_at)
