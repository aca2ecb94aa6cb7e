"""W4: many jobs pending: memory, idle processor time, time to be ready again, and what a tick costs as they grow."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial

from bench.arrivals import Sink, recurring_figures
from bench.duetime_node import DuetimeNode, instant, ndjson, webhook_job
from bench.results import Kind, Result, measured
from bench.scale import Scale
from bench.workloads import Setting

PAGE = 100_000
FAR_SECONDS = 30 * 365 * 86_400
TARGET = "http://127.0.0.1:9/never"


def measure(setting: Setting) -> Iterator[Result]:
    scale = setting.scale
    with DuetimeNode() as node:
        loaded = 0
        for pending in scale.pending:
            load(node, loaded, pending)
            loaded = pending
            tick = partial(_tick, node, setting.sink, pending, scale.tick_seconds)
            yield measured("w4-tick", f"Duetime, {pending:,} pending", Kind.US, tick)
        rest = partial(_rest_and_restart, node, scale)
        yield measured("w4", f"Duetime, {loaded:,} pending", Kind.US, rest)


def load(node: DuetimeNode, start: int, end: int) -> None:
    """Grow to `end` jobs, each due at an instant of its own, decades from now."""
    far_at = time.time() + FAR_SECONDS
    for at in range(start, end, PAGE):
        numbers = range(at, min(at + PAGE, end))
        body = ndjson(webhook_job(n, TARGET, instant(far_at + n % 86_400)) for n in numbers)
        node.add_batch(body, len(numbers))


def _tick(node: DuetimeNode, sink: Sink, pending: int, seconds: int) -> dict[str, float]:
    """One more job that fires every second: how late it is and what the node spends meanwhile."""
    sink.reset()
    time.sleep(2)  # the checkpoint of what was just loaded is not part of a tick
    run = f"w4-{pending}"
    first_at = float(math.ceil(time.time() + 1.5))
    last_at = first_at + seconds - 1
    window = {"start_at": instant(first_at - 0.5), "end_at": instant(last_at + 0.5)}
    node.add_job(webhook_job(run, sink.url(f"/{run}/0"), "* * * * * *", **window))
    time.sleep(max(0.0, first_at - 0.5 - time.time()))
    before, started = node.cpu_seconds(), time.perf_counter()
    sink.wait_for(seconds, idle_seconds=3, until=last_at + 0.5)
    time.sleep(max(0.0, last_at + 0.5 - time.time()))
    used = (node.cpu_seconds() - before) / (time.perf_counter() - started)
    figures = recurring_figures(sink.arrivals(run), 1, [first_at + n for n in range(seconds)])
    return {**figures, "cpu_percent": used * 100}


def _rest_and_restart(node: DuetimeNode, scale: Scale) -> dict[str, float]:
    rss_loaded = node.rss_bytes()
    before, started = node.cpu_seconds(), time.perf_counter()
    time.sleep(scale.idle_seconds)
    idle = (node.cpu_seconds() - before) / (time.perf_counter() - started)
    node.stop()
    after_stop = node.start()
    rss_restarted = node.rss_bytes()
    node.kill()
    after_kill = node.start()
    return {
        "rss_mb": rss_loaded / 1e6,
        "rss_restarted_mb": rss_restarted / 1e6,
        "idle_cpu_percent": idle * 100,
        "ready_seconds": after_stop,
        "ready_after_kill_seconds": after_kill,
    }
