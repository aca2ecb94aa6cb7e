"""Rows of statistics, their roll-up, and reports of nodes."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.histogram import Histogram
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import PythonJob
from duetime.domain.node_report import NodeFacts, NodeReport
from duetime.domain.statistics import BUCKET, OTHERS, StatisticsQuery, StatisticsRow, Tally, merged
from duetime.ports.store import EndRecord, Store
from duetime.store import rolling
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, ended, finish, fire, new_job, one, spec

AT = NOW - NOW % HOUR
TYPE = "http_request"
OTHER = "other"
DUE = NOW + MINUTE


def row(at: int = AT, number: int = 1, tenant: str = TENANT, **fields: object) -> StatisticsRow:
    tally = Tally(
        attempts=number, completed=number, skipped={"missed": 2}, errors={"timeout": 1},
        lateness=Histogram(1, 40, {-24: number}),
    )  # fmt: skip
    values = {"span": BUCKET, "type": TYPE, "subject": "", "node": 1, **fields}
    return StatisticsRow(bucket_at=at, tenant=tenant, tally=tally, **values)  # type: ignore[arg-type]


async def write(store: Store, *rows: StatisticsRow) -> int:
    return int(await one(store, c.WriteStatistics(NOW, rows)))


async def rows_of(store: Store, **fields: object) -> list[StatisticsRow]:
    values = {"since": 0, "until": 2**50, "subject": None, **fields}
    return await store.list_statistics(StatisticsQuery(**values))  # type: ignore[arg-type]


async def roll_up(store: Store, span: int, into: int | None, until: int, limit: int = 1000) -> list[int]:
    moved = []
    while number := await one(store, c.RollUpStatistics(NOW, span, into, until, limit)):
        moved.append(number)
    return moved


async def test_rows_are_read_as_they_were_written_the_latest_first(store: Store):
    rows = [row(AT), row(AT + BUCKET, 7, subject="job:x"), row(AT + 2 * BUCKET, tenant='"ü\\', type="")]
    assert await write(store, *rows) == 3
    assert await rows_of(store) == rows[::-1]


async def test_a_row_replaces_that_of_its_bucket_key_and_node(store: Store):
    await write(store, row(), row(node=2))
    assert await write(store, row(number=5)) == 1
    assert sorted(one.tally.completed for one in await rows_of(store)) == [1, 5]


async def test_a_query_selects_by_time_span_tenant_type_and_subject(store: Store):
    rows = [
        row(AT), row(AT, tenant=OTHER), row(AT, type="script"), row(AT, subject="tag:a=b"), row(AT + BUCKET),
        row(AT, span=MINUTE), row(AT - HOUR, span=HOUR),
    ]  # fmt: skip
    await write(store, *rows)

    async def found(**fields: object) -> list[StatisticsRow]:
        some = await rows_of(store, **fields)
        return [one for one in rows if one in some]

    assert await found() == rows
    assert await found(tenant=OTHER) == [rows[1]]
    assert await found(type="script") == [rows[2]]
    assert await found(subject="tag:a=b", tenant=TENANT) == [rows[3]]
    assert await found(subject="", tenant=TENANT, type=TYPE, span=BUCKET) == [rows[0], rows[4]]
    assert await found(span=MINUTE) == [rows[5]]
    assert await found(since=AT + BUCKET, subject="") == [rows[4], rows[5]], "a minute that has not ended"
    assert await found(until=AT) == [rows[6]]
    assert await found(since=AT, span=HOUR) == []
    assert len(await rows_of(store, limit=2)) == 2


async def test_a_roll_up_keeps_every_sum(store: Store):
    rows = [row(AT + n * BUCKET, n + 1, node=1 + n % 2) for n in range(12)] + [row(AT, 50, tenant=OTHER)]
    await write(store, *rows)
    before = merged(await rows_of(store))
    assert await roll_up(store, BUCKET, MINUTE, AT + MINUTE) == [7]
    assert merged(await rows_of(store)) == before
    assert {one.span for one in await rows_of(store, until=AT + MINUTE)} == {MINUTE}
    assert await roll_up(store, BUCKET, MINUTE, AT + 2 * MINUTE) == [6]
    found = await rows_of(store)
    assert sorted((one.bucket_at - AT, one.tenant, one.node, one.tally.completed) for one in found) == [
        (0, TENANT, 0, 21), (0, OTHER, 0, 50), (MINUTE, TENANT, 0, 57),
    ]  # fmt: skip
    assert await roll_up(store, MINUTE, HOUR, AT + HOUR) == [3]
    assert [(one.span, one.bucket_at) for one in await rows_of(store)] == [(HOUR, AT)] * 2
    assert merged(await rows_of(store)) == before


async def test_a_roll_up_in_small_pages_is_the_same(store: Store):
    rows = [row(AT + n * BUCKET, n + 1) for n in range(12)]
    await write(store, *rows)
    before = merged(await rows_of(store))
    assert await roll_up(store, BUCKET, MINUTE, AT + 2 * MINUTE, limit=5) == [5, 1, 5, 1]
    assert len(await rows_of(store)) == 2
    assert merged(await rows_of(store)) == before


async def test_rows_of_a_rolled_up_bucket_are_not_written_again(store: Store):
    await write(store, row(number=3))
    await roll_up(store, BUCKET, MINUTE, AT + MINUTE)
    assert await write(store, row(number=4), row(AT + MINUTE, number=10)) == 1
    assert merged(await rows_of(store)).completed == 13


async def test_a_roll_up_into_nothing_removes_rows(store: Store):
    await write(store, row(AT - HOUR, span=HOUR), row(AT, span=HOUR), row(AT - HOUR))
    assert await roll_up(store, HOUR, None, AT) == [1]
    assert sorted(one.bucket_at for one in await rows_of(store)) == [AT - HOUR, AT]


async def test_a_bucket_has_a_bounded_number_of_keys(store: Store, monkeypatch: pytest.MonkeyPatch):
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"duetime.store.{module}.on_statistics.MOST_ROLLED_KEYS", 3)
    assert rolling.MOST_ROLLED_KEYS > 3
    await write(store, *(row(tenant=f"t{n}") for n in range(2)))
    await roll_up(store, BUCKET, MINUTE, AT + BUCKET)
    await write(store, *(row(AT + BUCKET, tenant=f"t{n}") for n in range(6)))
    await roll_up(store, BUCKET, MINUTE, AT + MINUTE)
    found = {one.tenant: one.tally.completed for one in await rows_of(store)}
    assert found == {"t0": 2, "t1": 2, "t2": 1, OTHERS: 3}


# Reports of nodes


async def test_the_last_report_of_each_node_is_kept(store: Store):
    facts = NodeFacts(name="a", roles=("api", "timer"), loop_lag_ms=1.5, clock_offset_ms=-3, failing=("claimer",))
    for node, at in ((1, NOW), (2, NOW + 1), (1, NOW + 2)):
        assert await one(store, c.ReportNode(at, node, facts)) is None
    assert await store.list_node_reports(10) == [NodeReport(1, NOW + 2, facts), NodeReport(2, NOW + 1, facts)]
    assert len(await store.list_node_reports(1)) == 1
    await one(store, c.RollUpStatistics(NOW, BUCKET, MINUTE, AT, reports_before=NOW + 2))
    assert [report.node for report in await store.list_node_reports(10)] == [1]


# What is due and what waits


async def test_due_timers_are_counted_by_tenant(store: Store):
    for tenant, due_at in ((TENANT, DUE), (TENANT, DUE + SECOND), (OTHER, DUE), (OTHER, DUE + HOUR)):
        await one(store, c.CreateJobs(NOW, (new_job(tenant=tenant, due_at=due_at),)))
    assert await store.count_due_timers(DUE, DUE + HOUR, 10) == {TENANT: 2, OTHER: 1}
    assert await store.count_due_timers(DUE + 1, DUE + HOUR, 10) == {TENANT: 1}
    assert sum((await store.count_due_timers(0, DUE + 2 * HOUR, 3)).values()) == 3


async def test_due_timers_of_a_tenant_are_counted_among_its_own_jobs(store: Store):
    for tenant, due_at in ((TENANT, DUE), (TENANT, DUE + SECOND), (OTHER, DUE), (OTHER, DUE + HOUR)):
        await one(store, c.CreateJobs(NOW, (new_job(tenant=tenant, due_at=due_at),)))
    assert await store.count_due_timers_of(TENANT, DUE, DUE + HOUR, 3) == (2, False)
    assert await store.count_due_timers_of(TENANT, DUE + 1, DUE + HOUR, 3) == (1, False)
    assert await store.count_due_timers_of(TENANT, DUE, DUE + HOUR, 1) == (1, True)
    assert await store.count_due_timers_of("nobody", DUE, DUE + HOUR, 1) == (0, False)


async def test_waiting_executions_are_counted_until_they_are_claimed(store: Store, node: int):
    job_id = await add_job(store, spec(overlap="allow"))
    for n in range(3):
        await add_execution(store, job_id, DUE + n)
    assert await store.count_waiting(TENANT, DUE + 2, 10) == 2
    assert await store.count_waiting(TENANT, DUE + HOUR, 10) == 3
    assert await store.count_waiting(TENANT, DUE + HOUR, 2) == 2
    assert await store.count_waiting(OTHER, DUE + HOUR, 10) == 0
    await claim_waiting(store, node, DUE + HOUR)
    assert await store.count_waiting(TENANT, DUE + HOUR, 10) == 0


async def test_executions_of_functions_are_counted_as_waiting_too(store: Store):
    function = {"name": "f", "schedule": "every 1m", "type": "python", "payload": {"function": "f"}}
    job_id = await add_job(store, msgspec.convert(function, PythonJob))
    await add_execution(store, job_id, DUE)
    assert await store.count_waiting(TENANT, DUE + 1, 10) == 1
    assert await store.count_waiting(TENANT, DUE, 10) == 0


async def test_ends_of_a_job_are_the_latest_in_the_span(store: Store, node: int):
    job_id = await add_job(store)
    other = await add_job(store)
    for n in range(3):
        _, claims = await fire(store, node, DUE + n * MINUTE)
        await finish(store, node, DUE, *(ended(claim, now=DUE + n) for claim in claims))
    found = await store.list_ends(job_id, DUE, DUE + 2 * MINUTE, 10, TENANT)
    assert [end.scheduled_at for end in found] == [DUE + MINUTE, DUE]
    assert isinstance(found[0], EndRecord)
    assert found[0].state == "COMPLETED"
    assert len(await store.list_ends(other, 0, 2**50, 2)) == 2
    assert await store.list_ends(job_id, DUE + HOUR, DUE + 2 * HOUR, 10) == []
