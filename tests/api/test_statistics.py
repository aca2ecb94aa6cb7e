"""Counts, rates and histograms over the API: what they say, and who sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.people import People
from api.person import Person, refused
from cluster.processes import Client, wait_until
from duetime.api import figures
from duetime.api.cache import Moments
from duetime.api.context import ApiContext
from duetime.api.routes import health, statistics
from duetime.domain import commands as c
from duetime.domain.histogram import Histogram
from duetime.domain.identity import LOCAL, Caller, Role, Tier, is_operator, rights_of
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.node_report import NodeFacts, NodeReport
from duetime.domain.states import State, Trigger
from duetime.domain.statistics import BUCKET, MOST_BUCKETS, OTHERS, StatisticsRow, Tally, bucket_of
from duetime.ports.store import EndRecord
from duetime.store.sqlite import SqliteStore
from duetime.testing import HandClock
from samples import TENANT, add_job, one

ADA = Caller(TENANT, "ada", Role.ADMIN, Tier.FREE, rights_of(Role.ADMIN, None), "jwt")


def row(at: int, number: int, tenant: str = TENANT, type: str = "http_request", failed: int = 0) -> StatisticsRow:
    tally = Tally(
        attempts=number + failed, completed=number, failed=failed, duration=Histogram(0, 20 * number, {-45: number})
    )
    return StatisticsRow(BUCKET, at, tenant, type, "", 1, tally)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def context(store: SqliteStore, clock: HandClock) -> ApiContext:
    """The parts of a context that these routes use."""
    engine = SimpleNamespace(cluster=lambda: SimpleNamespace(node=1), facts=lambda: NodeFacts(name="node-1"))
    return cast(
        ApiContext,
        SimpleNamespace(store=store, clock=clock, moments=Moments(), engine=engine, operator_tenant=""),
    )


async def metrics(context: ApiContext, caller: Caller) -> Any:
    context.moments._found.clear()
    return await statistics.ObservabilityController.get_metrics.fn(None, context, caller)


async def histograms(context: ApiContext, caller: Caller = ADA, **query: Any) -> Any:
    return await statistics.ObservabilityController.get_histograms.fn(None, context, caller, **query)


# Who sees what


@pytest.mark.parametrize(
    ("caller", "operator_tenant", "expected"),
    [
        (LOCAL, "", True), (LOCAL, "ops", False), (ADA, "", False), (ADA, TENANT, True), (ADA, "other", False),
        (Caller(TENANT, "ann", Role.USER, Tier.FREE, rights_of(Role.USER, None), "jwt"), TENANT, False),
    ],
)  # fmt: skip
def test_the_operator_is_an_admin_of_its_tenant_or_the_local_caller(
    caller: Caller, operator_tenant: str, expected: bool
) -> None:
    assert is_operator(caller, operator_tenant) is expected


async def test_an_admin_sees_the_rates_of_the_own_tenant_and_the_operator_all(
    context: ApiContext, store: SqliteStore, clock: HandClock
) -> None:
    at = bucket_of(clock.now()) - BUCKET
    rows = (row(at, 30, failed=10), row(at, 60, "other"), row(at, 6, type="script"))
    await one(store, c.WriteStatistics(at, rows))
    clock.advance(2)
    seen = await metrics(context, ADA)
    assert (seen.scope, seen.by_tenant, seen.nodes) == ("tenant", {}, [])
    assert (seen.total.one.executions, seen.total.one.failed, seen.total.one.per_second) == (46, 10, round(46 / 60, 3))
    assert {kind: windows.five.executions for kind, windows in seen.by_type.items()} == {
        "http_request": 40,
        "script": 6,
    }
    whole = await metrics(context, LOCAL)
    assert whole.total.fifteen.executions == 106
    assert {tenant: windows.one.executions for tenant, windows in whole.by_tenant.items()} == {TENANT: 46, "other": 60}
    assert [node.name for node in whole.nodes] == ["node-1"]
    assert whole.total.one.duration.p50_ms == 20


async def test_rates_fall_with_the_clock(context: ApiContext, store: SqliteStore, clock: HandClock) -> None:
    at = bucket_of(clock.now()) - BUCKET
    await one(store, c.WriteStatistics(at, (row(at, 6),)))
    clock.advance(2)
    assert (await metrics(context, ADA)).total.one.executions == 6
    clock.advance(61)
    later = await metrics(context, ADA)
    assert (later.total.one.executions, later.total.five.executions) == (0, 6)


async def test_tenants_beyond_the_largest_are_summed() -> None:
    rows = [row(0, number + 1, f"t{number}") for number in range(4)]
    spans = {"1m": figures.Window(0, MINUTE), "5m": figures.Window(0, MINUTE), "15m": figures.Window(0, MINUTE)}
    found = figures.windows_by(rows, spans, "tenant", 2)
    assert {name: windows.one.executions for name, windows in found.items()} == {"t3": 4, "t2": 3, OTHERS: 3}


async def test_living_nodes_are_listed_and_those_that_are_silent_without_figures(
    context: ApiContext, store: SqliteStore, clock: HandClock
) -> None:
    now = clock.now()
    await one(store, c.ReportNode(now, 2, NodeFacts(name="b", queued=5)))
    await one(store, c.ReportNode(now - MINUTE, 3, NodeFacts(name="gone", queued=9)))
    await one(store, c.ReportNode(now - MINUTE, 4, NodeFacts(name="b", queued=7)))  # before its restart
    assert [(node.id, node.name, node.queued, node.standing) for node in await figures.list_nodes(context)] == [
        (2, "b", 5, ""), (3, "gone", 0, "silent"), (1, "node-1", 0, ""),
    ]  # fmt: skip
    assert not NodeReport(3, now - MINUTE, NodeFacts()).is_fresh(now)


# Histograms


async def test_histograms_have_the_bars_of_each_bucket(
    context: ApiContext, store: SqliteStore, clock: HandClock
) -> None:
    at = bucket_of(clock.now())
    await one(store, c.WriteStatistics(at, (row(at, 3), row(at - BUCKET, 4), row(at, 9, "other"))))
    clock.advance(5)
    since = "2025-12-31T23:59:00Z"
    found = await histograms(context, since=since, bucket=10)
    assert (found.bucket_seconds, found.source, found.is_capped) == (10, "statistics", False)
    assert [bucket.completed for bucket in found.buckets] == [4, 3]
    assert found.buckets[1].duration.bars == [(20.263, 3)]
    found = await histograms(context, since=since, bucket=10, type="script")
    assert found.buckets == []


async def test_a_window_has_a_bounded_number_of_buckets(context: ApiContext) -> None:
    found = await histograms(context, since="2025-12-01T00:00:00Z", bucket=1)
    assert 31 * 24 * HOUR / SECOND / found.bucket_seconds <= MOST_BUCKETS


async def test_a_span_without_length_is_refused(context: ApiContext) -> None:
    with pytest.raises(Exception, match="must be before"):
        await histograms(context, since="2026-01-02T00:00:00Z")


def test_buckets_of_executions_count_their_ends() -> None:
    ends = [
        EndRecord(0, 5, 25, State.COMPLETED, Trigger.SCHEDULE), EndRecord(0, 5, 65_000, State.FAILED, Trigger.RETRY),
        EndRecord(0, None, 70_000, State.CANCELLED, Trigger.SCHEDULE),
    ]  # fmt: skip
    first, second = figures.view_buckets(figures.bucket_ends(ends, MINUTE))
    assert (first.completed, first.lateness.count, first.duration.count) == (1, 1, 1)
    assert (second.failed, second.cancelled, second.lateness.count, second.duration.count) == (1, 1, 0, 1)


# Counts


async def test_late_and_coming_jobs_are_those_of_the_tenant(
    context: ApiContext, store: SqliteStore, clock: HandClock
) -> None:
    now = clock.now()
    for tenant, due_at in ((TENANT, now - 2 * SECOND), (TENANT, now - 500), (TENANT, now + MINUTE), ("x", now + 1)):
        await add_job(store, tenant=tenant, due_at=due_at, now=now)
    found = await figures.count(context, TENANT)
    assert (found.late, found.due_next_hour, found.late_is_capped, found.due_next_hour_is_capped) == (
        1,
        1,
        False,
        False,
    )
    assert found.jobs["PENDING"] == 3
    assert (await figures.count(context, "x")).due_next_hour == 1


async def test_counting_ends_early_and_says_so(
    context: ApiContext, store: SqliteStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MOST_COUNTED", 3)
    for _ in range(5):
        await add_job(store, due_at=clock.now() + MINUTE, now=clock.now())
    found = await figures.count(context, TENANT)
    assert (found.due_next_hour, found.due_next_hour_is_capped, found.late_is_capped) == (3, True, False)


async def test_what_others_have_due_neither_changes_the_counts_of_a_tenant_nor_shows_in_them(
    context: ApiContext, store: SqliteStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MOST_COUNTED", 4)
    for due_at in (clock.now() - MINUTE, clock.now() + HOUR - 1, clock.now() + 2 * HOUR):
        await add_job(store, due_at=due_at, now=clock.now())
    for _ in range(5):
        await add_job(store, tenant="evil", due_at=clock.now() - 2 * MINUTE, now=clock.now())
        await add_job(store, tenant="evil", due_at=clock.now() + MINUTE, now=clock.now())
    found = await figures.count(context, TENANT)
    assert (found.late, found.due_next_hour) == (1, 1)
    assert (found.late_is_capped, found.due_next_hour_is_capped) == (False, False)
    assert (await figures.count(context, "evil")).due_next_hour_is_capped


async def test_many_callers_share_one_read() -> None:
    moments, reads = Moments(), 0
    go = asyncio.Event()

    async def read() -> int:
        nonlocal reads
        reads += 1
        await go.wait()
        return reads

    waiting = [asyncio.create_task(moments.get("x", 60.0, read)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    assert [await task for task in waiting[1:]] == [1] * 4
    assert await moments.get("x", 60.0, read) == 1
    assert await moments.get("y", 60.0, read) == 2


async def test_a_failed_read_is_not_remembered() -> None:
    moments = Moments()

    async def fail() -> int:
        raise ValueError("the database is away")

    async def work() -> int:
        return 7

    with pytest.raises(ValueError, match="away"):
        await moments.get("x", 60.0, fail)
    assert await moments.get("x", 60.0, work) == 7


# On a server


def test_users_who_are_no_admins_are_refused(people: People) -> None:
    for path in ("/stats", "/observability/metrics", "/observability/histograms"):
        assert "the right 'admin'" in refused(people.ann.get(path), 403, "FORBIDDEN")
        assert people.ada.get(path).status == 200
    assert people.ada.get("/observability/metrics").json()["scope"] == "tenant"
    stats = people.ada.get("/stats").json()
    assert (stats["scope"], stats["tenants"]) == ("tenant", [])


def test_a_job_has_histograms_from_its_executions(person: Person) -> None:
    job_id = person.create("immediate")
    person.wait_for_end(job_id)
    found = person.client.get(f"/jobs/{job_id}/histograms").json()
    assert (found["source"], found["is_capped"]) == ("executions", False)
    assert sum(bucket["completed"] for bucket in found["buckets"]) == 1
    assert found["buckets"][0]["duration"]["count"] == 1


def test_executions_are_counted_by_state_and_jobs_by_status(person: Person) -> None:
    before = person.client.get("/stats").json()
    assert set(before["jobs"]) == {"PENDING", "PAUSED", "COMPLETED", "CANCELLED"}
    job_id = person.create("immediate")
    person.wait_for_end(job_id)

    def counted() -> bool:  # (the counts are a few seconds old)
        now = person.client.get("/stats").json()
        jobs, executions = now["jobs"], now["executions"]
        return bool(
            jobs["COMPLETED"] > before["jobs"]["COMPLETED"]
            and executions["COMPLETED"] > before["executions"]["COMPLETED"]
        )

    wait_until(counted, 15, "the job is counted")


def test_live_and_ready_respond_without_a_credential(client: Client) -> None:
    live, ready = client.get("/health/live"), client.get("/health/ready")
    assert (live.status, live.json()) == (200, {"status": "ok"})
    assert (ready.status, ready.json()) == (200, {"is_ready": True, "reason": None})


def test_health_names_the_node_and_counts_jobs_by_status(client: Client) -> None:
    found = client.get("/health?verbose=true").json()
    assert found["node"].keys() == {
        "name", "version", "roles", "standing", "term", "owned_shards", "runs_housekeeping", "loop_lag_ms",
        "clock_offset_ms",
    }  # fmt: skip
    assert (found["node"]["standing"], found["node"]["runs_housekeeping"]) == ("trusted", True)
    assert sum(found["jobs"]["by_status"].values()) == found["jobs"]["current_count"]
    assert set(found["components"]) >= {"database", "clock", "lease", "event loop", "writer", "executions", "capacity"}


def test_a_stopping_node_is_not_ready() -> None:
    engine = SimpleNamespace(
        cluster=lambda: SimpleNamespace(clock=health.ClockState.RIGHT, standing="trusted", view=None), facts=NodeFacts,
        health=dict, is_stopping=lambda: True,
    )  # fmt: skip
    components = health._own_components(cast(ApiContext, SimpleNamespace(engine=engine)), None)
    assert health.rules.judge(components).takes_traffic is False
