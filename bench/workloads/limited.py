"""What rate limits and quotas cost: creates by a user who has them beside creates by one who has none, in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from statistics import mean

import msgspec

from bench import limits, loadgen
from bench.duetime_node import DuetimeNode, webhook_job
from bench.postgres import postgres
from bench.results import Kind, Result, measured
from bench.workloads import Setting
from bench.workloads.creates import FAR, TARGET
from duetime.api.auth.tokens import sign

ROUNDS = 6
NOTE = f"the mean of {ROUNDS} rounds on one node, with limits and without in turn"
SECRET = "only for this benchmark, on loopback"
MANY = "100000000"
SETTINGS = {"DUETIME_JWT_SECRET": SECRET, "DUETIME_PRO_REQUESTS_PER_HOUR": MANY, "DUETIME_PRO_JOBS_PER_DAY": MANY}


def measure(setting: Setting) -> Iterator[Result]:
    for table, where in (("limits", nullcontext(None)), ("pg-limits", postgres())):
        found: dict[str, dict[str, float]] = {}
        free, held = (lambda t=tier, w=where, f=found: _creates(t, w, f, setting) for tier in ("enterprise", "pro"))
        yield measured(table, "Duetime, a user without limits", Kind.LIMIT, free, NOTE)
        yield measured(table, "Duetime, a user with limits", Kind.US, held, NOTE)


def _creates(
    tier: str, where: AbstractContextManager[str | None], found: dict[str, dict[str, float]], setting: Setting
) -> dict[str, float]:
    if not found:
        body = msgspec.json.encode(webhook_job("#N#", TARGET, FAR)).decode()
        runs: dict[str, list[dict[str, float]]] = {"enterprise": [], "pro": []}
        with where as url, DuetimeNode(url, SETTINGS) as node:
            for number in range(ROUNDS):
                for kind in sorted(runs, reverse=bool(number % 2)):  # whoever comes second finds more jobs
                    load = loadgen.Load(
                        port=node.port, path="/api/v1/jobs", body=body, count=setting.scale.creates // 2,
                        headers={"authorization": f"Bearer {_token(kind)}"},
                    )  # fmt: skip
                    loaded = loadgen.run(load)
                    if set(loaded.statuses) != {"201"}:
                        raise RuntimeError(f"creates were not all answered 201: {loaded.statuses}")
                    runs[kind].append(limits.load_figures(loaded))
        for kind, figures in runs.items():
            found[kind] = {name: mean(run[name] for run in figures) for name in figures[0]}
    return found[tier]


def _token(tier: str) -> str:
    claims = {"user_id": tier, "role": "user", "tier": tier}
    return sign(SECRET, "duetime", "duetime", claims, time.time_ns() // 1_000_000, 3600)
