"""The same on PostgreSQL: a batch of creates, a burst, every second, and pages of decisions by one node and by two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import mean

import msgspec

from bench import limits, processes
from bench.duetime_node import DuetimeNode, ndjson, webhook_job
from bench.postgres import postgres
from bench.results import Kind, Result, measured
from bench.workloads import Setting, burst, every_second, pages
from bench.workloads.creates import FAR, TARGET

BURSTS = 3
BURSTS_NOTE = f"the mean of {BURSTS} bursts, on both stores in turn"


def measure(setting: Setting) -> Iterator[Result]:
    scale = setting.scale
    batch, decisions = scale.batch, scale.decisions_on_postgres
    yield measured("pg-batch", "bare COPY of the same rows", Kind.LIMIT, partial(_bare, "creates", batch))
    yield measured("pg-batch", "Duetime", Kind.US, partial(_batch, batch))
    bursts: dict[str, dict[str, float]] = {}
    yield measured("pg-w2", "Duetime on SQLite", Kind.LIMIT, lambda: _bursts("SQLite", bursts, setting), BURSTS_NOTE)
    yield measured("pg-w2", "Duetime", Kind.US, lambda: _bursts("PostgreSQL", bursts, setting), BURSTS_NOTE)
    yield measured("pg-w3", "Duetime", Kind.US, lambda: _every_second(setting))
    bare = "bare SQL for the same fires and finishes"
    yield measured("pg-w5", bare, Kind.LIMIT, partial(_bare, "executions", decisions))
    yield measured("pg-w5", "bare SQL for the fires alone", Kind.LIMIT, partial(_bare, "fires", decisions))
    yield measured("pg-w5", "Duetime", Kind.US, partial(_engines, 1, decisions))
    yield measured("pg-w5-two", "one node", Kind.LIMIT, partial(_engines, 1, decisions))
    yield measured("pg-w5-two", "Duetime, two nodes", Kind.US, partial(_engines, 2, decisions))
    claims: dict[str, float] = {}
    yield measured("pg-claim", "on a fresh table", Kind.LIMIT, lambda: _claims("fresh", claims, scale.churned))
    after = f"Duetime, after {scale.churned:,} executions"
    yield measured("pg-claim", after, Kind.US, lambda: _claims("churned", claims, scale.churned))


def _bare(what: str, count: int) -> dict[str, float]:
    seconds = []
    for _ in range(limits.REPEATS if count <= 100_000 else 1):
        with postgres() as url:
            command = [processes.PYTHON, "-m", "bench.bare_postgres", what, str(count), url]
            seconds.append(float(processes.run(command, timeout_seconds=300)))
    return {"per_second": count / min(seconds), "seconds": min(seconds)}


def _batch(count: int) -> dict[str, float]:
    lines = ndjson(webhook_job(number, TARGET, FAR) for number in range(count))
    runs = []
    for _ in range(limits.REPEATS):
        with postgres() as url, DuetimeNode(url) as node:
            runs.append(node.add_batch(lines, count))
    return {"per_second": count / min(runs), "seconds": min(runs)}


def _bursts(on: str, bursts: dict[str, dict[str, float]], setting: Setting) -> dict[str, float]:
    """Bursts differ by a tenth and more on a shared machine: both stores in turn, and the mean of each."""
    if not bursts:
        runs: dict[str, list[dict[str, float]]] = {"SQLite": [], "PostgreSQL": []}
        for _ in range(BURSTS):
            runs["SQLite"].append(burst.duetime(setting.sink, setting.scale.burst))
            with postgres() as url:
                runs["PostgreSQL"].append(burst.duetime(setting.sink, setting.scale.burst, url))
        for store, figures in runs.items():
            bursts[store] = {name: mean(run[name] for run in figures) for name in figures[0]}
    return bursts[on]


def _every_second(setting: Setting) -> dict[str, float]:
    with postgres() as url:
        jobs, seconds = setting.scale.jobs_each_second, setting.scale.seconds
        return every_second.duetime(setting.sink, jobs, seconds, jitter_seconds=0, database_url=url)


def _claims(when: str, claims: dict[str, float], count: int) -> dict[str, float]:
    """Both figures are of one run, on one table."""
    if not claims:
        with postgres() as url:
            command = [processes.PYTHON, "-m", "bench.churn", str(count), url]
            claims |= msgspec.json.decode(processes.run(command, timeout_seconds=900), type=dict[str, float])
    return {name: claims[f"{when}_{name}"] for name in ("p50_ms", "p99_ms")}


def _engines(nodes: int, count: int) -> dict[str, float]:
    with postgres() as url:
        return pages.engines(nodes, count, url)
