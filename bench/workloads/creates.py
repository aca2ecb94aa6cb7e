"""W1: creating jobs, one by one over 64 connections and in a batch, beside an empty handler and bare SQLite writes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bench import limits, loadgen
from bench.duetime_node import DuetimeNode, ndjson, webhook_job
from bench.results import Kind, Result
from bench.workloads import Setting

FAR = "2099-01-01T00:00:00Z"
TARGET = "http://127.0.0.1:9/never"


def measure(setting: Setting) -> Iterator[Result]:
    count, batch = setting.scale.creates, setting.scale.batch
    body = msgspec.json.encode(webhook_job("#N#", TARGET, FAR)).decode()
    yield Result("w1-single", "an empty Litestar POST", Kind.LIMIT, limits.empty_post(body, count))
    yield Result("w1-batch", "bare SQLite writes of the same rows", Kind.LIMIT, limits.sqlite_creates(batch))
    with DuetimeNode() as node:
        load = loadgen.Load(port=node.port, path="/api/v1/jobs", body=body, count=count)
        loaded = loadgen.run(load)
        if set(loaded.statuses) != {"201"}:
            raise RuntimeError(f"creates were not all answered 201: {loaded.statuses}")
        yield Result("w1-single", "Duetime", Kind.US, limits.load_figures(loaded))
        lines = ndjson(webhook_job(number, TARGET, FAR) for number in range(batch))
        seconds = node.add_batch(lines, batch)
        yield Result("w1-batch", "Duetime", Kind.US, {"per_second": batch / seconds, "seconds": seconds})
