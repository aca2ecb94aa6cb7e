"""W1: creating jobs, one by one over 64 connections and in a batch, beside an empty handler and bare SQLite writes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bench import limits, loadgen
from bench.duetime_node import DuetimeNode, ndjson, webhook_job
from bench.results import Kind, Result, measured
from bench.workloads import Setting

FAR = "2099-01-01T00:00:00Z"
TARGET = "http://127.0.0.1:8999/never"  # a port that jobs may call: no warnings in the responses


def measure(setting: Setting) -> Iterator[Result]:
    count, size = setting.scale.creates, setting.scale.batch
    body = msgspec.json.encode(webhook_job("#N#", TARGET, FAR)).decode()
    yield measured("w1-single", "an empty Litestar POST", Kind.LIMIT, lambda: limits.empty_post(body, count))
    bare = "bare SQLite writes of the same rows"
    yield measured("w1-batch", bare, Kind.LIMIT, lambda: limits.sqlite_creates(size))
    yield measured("w1-single", "Duetime", Kind.US, lambda: one_by_one(body, count))
    yield measured("w1-batch", "Duetime", Kind.US, lambda: batch(size))


def one_by_one(body: str, count: int) -> dict[str, float]:
    with DuetimeNode() as node:
        load = loadgen.Load(port=node.port, path="/api/v1/jobs", body=body, count=count)
        runs = [loadgen.run(load) for _ in range(limits.REPEATS)]
    for run in runs:
        if set(run.statuses) != {"201"}:
            raise RuntimeError(f"creates were not all answered 201: {run.statuses}")
    return limits.load_figures(max(runs, key=lambda run: run.per_second))


def batch(count: int) -> dict[str, float]:
    lines = ndjson(webhook_job(number, TARGET, FAR) for number in range(count))
    runs = []
    for _ in range(limits.REPEATS):
        with DuetimeNode() as node:
            runs.append(node.add_batch(lines, count))
    return {"per_second": count / min(runs), "seconds": min(runs)}
