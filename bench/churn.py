"""Churn: does a claim on PostgreSQL take longer once many executions have come and gone?

`python -m bench.churn COUNT URL` lets JOBS jobs run again and again, each run through the queue (fired, waiting,
claimed, finished), until COUNT executions have ended, and prints as JSON what a claim of PAGE took in the first rounds
and in the last, in milliseconds.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec
import uvloop

from bench.noop_engine import DONE
from duetime.domain.commands import ClaimExecutions, CreateJobs, Finish, Fire, NewJob, StartNode
from duetime.domain.execution import conclude
from duetime.domain.ids import make_id, shard_of
from duetime.domain.job import HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.domain.plan import plan
from duetime.ports.store import Store
from duetime.store.postgres import PostgresStore

JOBS = 2000
PAGE = 100
STEP = 1000  # ms between two rounds, by a clock that is turned by hand
COMPARED_ROUNDS = 20


async def main(count: int, url: str) -> dict[str, float]:
    store = PostgresStore(url)
    await store.start()
    now = time.time_ns() // 1_000_000
    await store.apply([CreateJobs(now, tuple(job(now) for _ in range(JOBS)))])
    (node,) = await store.apply([StartNode(now, "churn")])
    rounds = []
    for number in range(1, count // JOBS + 1):
        rounds.append(await run_all(store, node, now + number * STEP))
    await store.stop()
    return figures("fresh", rounds[:COMPARED_ROUNDS]) | figures("churned", rounds[-COMPARED_ROUNDS:])


async def run_all(store: Store, node: int, now: int) -> list[float]:
    """One run of each job; answers what the claims took."""
    page = plan(await store.list_due_timers(now, JOBS), now, int.from_bytes(os.urandom(8)))
    await store.apply([Fire(node, now, False, tuple(page.moves), tuple(page.executions))])
    took, left = [], len(page.executions)
    while left:
        begun = time.perf_counter()
        (claims,) = await store.apply([ClaimExecutions(node, now, PAGE, ("default",))])
        took.append((time.perf_counter() - begun) * 1000)
        await store.apply([Finish(node, now, tuple(conclude(claim, DONE, now, now + 1, 0.5) for claim in claims))])
        left -= len(claims)
    return took


def figures(when: str, rounds: list[list[float]]) -> dict[str, float]:
    took = sorted(claim for each in rounds for claim in each)
    return {f"{when}_p50_ms": took[len(took) // 2], f"{when}_p99_ms": took[len(took) * 99 // 100]}


def job(now: int) -> NewJob:
    spec = HttpJob(name="churn", schedule="every 1s", payload=HttpRequest(url="http://127.0.0.1:9/never"))
    job_id = make_id(now, os.urandom(10))
    return NewJob(job_id, "default", None, spec.name, spec.type, "local", shard_of(job_id), True, now + STEP, spec)


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(main(int(sys.argv[1]), sys.argv[2]))).decode())
