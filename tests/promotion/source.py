"""A SQLite node with rows in every table, and the operator of its promotion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from duetime.domain import commands as c
from duetime.domain.audit import entry
from duetime.domain.channels import Kind
from duetime.domain.execution import Outcome
from duetime.domain.identity import LOCAL, Role, Tier
from duetime.domain.instants import DAY, HOUR, MINUTE
from duetime.domain.job import Overlap, RetryPolicy
from duetime.domain.limits import Limit, Quota
from duetime.domain.notices import create_notices, make_notice
from duetime.domain.plan import Skipped
from duetime.domain.states import ErrorType
from duetime.operate.promote import Promotion
from duetime.ports.store import Store
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.connection import FILE_NAME
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, ended, finish, fire, new_job, one, spec

OTHER = "globex"
ADA = msgspec.structs.replace(LOCAL, tenant=TENANT, user_id="ada")
FAILURE = Outcome(ErrorType.HTTP_ERROR, "answered 500", 500, "an answer with ünïcode")


CHANNEL = c.PutChannel(NOW, TENANT, "ops", Kind.APPRISE, "encrypted:1:k:x", "slack://…", "ada")


class Silent:
    """Answers every question with yes, or with no. Records the messages."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.said: list[str] = []
        self.asked: list[str] = []
        self.rows = self.done = 0
        self.on_advance: Callable[[], None] = lambda: None

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer

    def begin(self, rows: int) -> None:
        self.rows = rows

    def advance(self, rows: int) -> None:
        self.done += rows
        self.on_advance()


def promotion(folder: Path, url: str | None, person: Silent | None = None) -> Promotion:
    return Promotion(folder, url, person or Silent(), stop_seconds=20)


async def fill(folder: Path) -> None:
    """Jobs of two tenants in every status; executions of three days in every state; a node stopped during attempts."""
    store = SqliteStore(folder)
    await store.start()
    try:
        await _fill(store)
    finally:
        await store.stop()


async def _fill(store: Store) -> None:
    before = int(await one(store, c.StartNode(NOW - 2 * DAY, "earlier")))
    await add_job(store, spec("0 9 * * *", tags={"team": "billing"}, key="daily", name="daily"), now=NOW - 2 * DAY)
    for n in range(3):
        await add_job(store, spec(f"every {n + 1}h"), now=NOW - 2 * DAY, tenant=OTHER)
    _, claims = await fire(store, before, NOW - DAY)
    assert await finish(store, before, NOW - DAY, *(ended(claim, now=NOW - DAY) for claim in claims)) == []
    await one(store, c.StopNode(NOW - HOUR, before))
    node = int(await one(store, c.StartNode(NOW, "node-1")))
    await _in_every_status(store, node)
    await _in_every_state(store, node)
    record = c.IdempotencyRecord(TENANT, "a-key", "fingerprint", '{"job_id": "x"}')
    await one(store, c.CreateJobs(NOW, (new_job(spec("@yearly", name="keyed")),), record))
    await _with_identity(store)
    await _with_chains(store, node)


async def _with_chains(store: Store, node: int) -> None:
    """A job that waits for two others, of which one has ended."""
    first = await add_job(store, spec("on_demand", name="first", key="first", priority=9))
    await add_job(store, spec("on_demand", name="chained", after=("first", "second")))
    await add_execution(store, first, NOW)
    (claim,) = await claim_waiting(store, node, NOW, limit=1)
    assert await finish(store, node, NOW, ended(claim)) == []


async def _with_identity(store: Store) -> None:
    quota = Quota(TENANT, "ann", Limit("jobs", 100, DAY))
    job = new_job(spec("@yearly", name="limited"))
    noted = entry(ADA, NOW, "job.create", job.job_id, None, job.spec)
    await one(store, c.CreateJobs(NOW, (job,), quota=quota, audit=(noted, noted)))
    key = c.NewKey("k" * 16, TENANT, "ann", "ci", Role.USER, Tier.PRO, ("read",), "0" * 64, "ada", NOW + DAY)
    await one(store, c.AddKey(NOW, key, entry(ADA, NOW, "api_key.create", key.key_id)))
    await one(store, CHANNEL)
    notice = make_notice(("ops",), "Late", "3 jobs are late.", severity="warning", status="firing", data={"late": 3})
    await one(store, create_notices(TENANT, notice, NOW, bytes(10)))


async def _in_every_status(store: Store, node: int) -> None:
    paused = await add_job(store, spec("every 5m", name="paused"))
    await one(store, c.PauseJob(NOW, TENANT, paused, "ann", "too loud"))
    cancelled = await add_job(store, spec("every 5m", name="cancelled"))
    skipped = Skipped(cancelled, TENANT, NOW + 5 * MINUTE, NOW + HOUR, 11, "cancelled")
    await one(store, c.CancelJob(NOW, TENANT, cancelled, (skipped,)))
    once = await add_job(store, spec("2026-01-01T00:00:01Z", name="once"))
    _, claims = await fire(store, node, NOW + 1000, once)
    assert await finish(store, node, NOW + 2000, *(ended(claim, now=NOW + 2000) for claim in claims)) == []


async def _in_every_state(store: Store, node: int) -> None:
    no_retry = RetryPolicy(max_retries=0)
    failing = await add_job(store, spec("every 1d", name="failing", retry_policy=no_retry))
    retried = await add_job(store, spec("every 1d", name="retried"))
    queued = await add_job(store, spec("every 1d", name="queued", priority=3))
    held = await add_job(store, spec("every 1m", name="held", overlap=Overlap.QUEUE_ALL))
    running = await add_job(store, spec("every 1d", name="running"))
    await add_execution(store, running, NOW)
    assert len(await claim_waiting(store, node, NOW)) == 1
    await add_execution(store, failing, NOW)
    await add_execution(store, retried, NOW)
    claims = await claim_waiting(store, node, NOW)
    assert await finish(store, node, NOW + 100, *(ended(claim, FAILURE, now=NOW + 100) for claim in claims)) == []
    await fire(store, node, NOW + MINUTE, held)
    await fire(store, node, NOW + 2 * MINUTE, held, claim=False)
    await add_execution(store, queued, NOW + MINUTE)
    gone = await add_execution(store, queued, NOW + MINUTE)
    await one(store, c.CancelExecution(NOW + MINUTE, TENANT, gone))


def rows_of(folder: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(folder / FILE_NAME))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()
