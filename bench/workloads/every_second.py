"""W3: many jobs due together on every full second, and the same jobs spread over the second by jitter."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial

from bench.arrivals import Sink, recurring_figures, spread_figures
from bench.duetime_node import DuetimeNode, instant, pages, webhook_job
from bench.peers.catalogue import PEERS
from bench.peers.run import every_second
from bench.results import Kind, Result, measured
from bench.workloads import Setting

LEAD_SECONDS = 4.0


def measure(setting: Setting) -> Iterator[Result]:
    sink, jobs, seconds = setting.sink, setting.scale.jobs_each_second, setting.scale.seconds
    yield measured("w3", "Duetime", Kind.US, partial(duetime, sink, jobs, seconds, jitter_seconds=0))
    yield measured("w3-jitter", "Duetime", Kind.US, partial(duetime, sink, jobs, seconds, jitter_seconds=1))
    for peer in PEERS if setting.peers else ():
        if peer.slow and not setting.scale.slow_peers:
            continue
        yield measured("w3", peer.name, Kind.PEER, partial(every_second, peer, sink, jobs, seconds), peer.note)


def duetime(
    sink: Sink, jobs: int, seconds: int, jitter_seconds: int, database_url: str | None = None
) -> dict[str, float]:
    """Start and end stand half a second off the full one, so that exactly `seconds` instants lie between them."""
    sink.reset()
    run = "w3j" if jitter_seconds else "w3"
    with DuetimeNode(database_url) as node:
        first_at = float(math.ceil(time.time() + LEAD_SECONDS))
        last_at = first_at + seconds - 1
        window = {"start_at": instant(first_at - 0.5), "end_at": instant(last_at + 0.5)}
        policies = {"overlap": "allow", "jitter_seconds": jitter_seconds, **window}
        made = [webhook_job(n, sink.url(f"/{run}/{n}"), "* * * * * *", **policies) for n in range(jobs)]
        for body, size in pages(made):
            node.add_batch(body, size)
        if time.time() > first_at - 0.5:
            raise RuntimeError("the first second came before all jobs were stored")
        sink.wait_for(jobs * seconds, idle_seconds=5, until=last_at + 1)
        arrivals = sink.arrivals(run)
    if jitter_seconds:
        return spread_figures(arrivals, jobs * seconds)
    return recurring_figures(arrivals, jobs, [first_at + number for number in range(seconds)])
