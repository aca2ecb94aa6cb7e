"""Jobs, notifications and executions of one tenant take no room and no history of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.store.conftest import MakeStore, Raw
from contract.store.test_capacity import counted, figures, size
from duetime.domain import commands as c
from duetime.domain.capacity import Capacity
from duetime.domain.errors import InsufficientStorage, QuotaExceeded
from duetime.domain.execution import Outcome
from duetime.domain.history import Held
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import JobStatus, RetryPolicy
from duetime.domain.limits import ALL_USERS, Limit, Quota
from duetime.domain.on_finish import UNSENT
from duetime.domain.states import ErrorType, State
from duetime.domain.subscriptions import notification
from duetime.engine.retention import FIRST_ID, Retention
from duetime.logs.folder import FolderLogs
from duetime.ports.store import ExecutionQuery, JobQuery, Store
from duetime.testing import HandClock
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    change_of,
    claim_waiting,
    ended,
    execution,
    finish,
    new_id,
    new_job,
    one,
    spec,
)
from snapshot import recount, totals

FAILURE = Outcome(ErrorType.HTTP_ERROR, "answered 404", 404)
HOSTILE = ("hostile-1", "hostile-2")
MOST_FILLED = 200  # more than any limit here


async def started(make_store: MakeStore, capacity: Capacity) -> Store:
    store = make_store(capacity)
    await store.start()
    return store


async def fill(store: Store, tenant: str) -> int:
    """Returns how many jobs a tenant can create before a refusal."""
    for number in range(MOST_FILLED):
        answer = await one(store, c.CreateJobs(NOW, (new_job(tenant=tenant),)))
        if isinstance(answer, InsufficientStorage):
            return number
        assert answer is None
    raise AssertionError(f"{tenant} was not refused after {MOST_FILLED} jobs")


# Room


@pytest.mark.parametrize("capacity", [Capacity(100, None, 75), Capacity(None, 100 * size(), 75)])
async def test_two_tenants_that_fill_the_store_leave_room_for_a_third(
    make_store: MakeStore, raw: Raw, capacity: Capacity
):
    store = await started(make_store, capacity)
    assert [await fill(store, tenant) for tenant in HOSTILE] == [75, 12]
    assert await one(store, c.CreateJobs(NOW, (new_job(tenant="victim"),))) is None
    job = new_job(spec(description="x"), tenant="victim")
    assert await one(store, c.CreateJobs(NOW, (job,))) is None
    longer = change_of(job.job_id, spec(description="x" * 10), tenant="victim")
    assert await one(store, longer) == 2, "a change that grows a job has the same share"
    assert isinstance(await one(store, c.CreateJobs(NOW, (new_job(tenant=HOSTILE[0]),))), InsufficientStorage)
    assert await store.get_load() == await counted(raw)
    await store.stop()


async def test_each_tenant_gets_its_share_within_one_commit(make_store: MakeStore):
    store = await started(make_store, Capacity(20, None, 75))
    creates = [c.CreateJobs(NOW, (new_job(tenant=tenant),)) for tenant in ["a"] * 17 + ["b"] * 4 + ["a"]]
    answers = await store.apply(creates)
    refused = [number for number, answer in enumerate(answers) if answer is not None]
    assert refused == [15, 16, 19, 20, 21]
    assert await store.count_jobs(JobQuery("a")) == 15
    assert await store.count_jobs(JobQuery("b")) == 2
    await store.stop()


async def test_a_refusal_has_the_tenants_own_figures(make_store: MakeStore):
    store = await started(make_store, Capacity(100, None, 75))
    await fill(store, "large")
    held = await fill(store, "small")
    refused = await one(store, c.CreateJobs(NOW, (new_job(tenant="small"),)))
    assert figures(refused) == ("job_count", held, 75, 1)
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(tenant="large"),)))) == ("job_count", 75, 75, 1)
    await store.stop()


async def test_room_that_a_tenant_returns_is_available_to_all(make_store: MakeStore, raw: Raw):
    store = await started(make_store, Capacity(8, None, 75))
    jobs = [new_job(tenant="a") for _ in range(6)]
    assert await one(store, c.CreateJobs(NOW, tuple(jobs))) is None
    assert await fill(store, "b") == 1
    for job in jobs[:4]:
        assert await one(store, c.PurgeJob("a", job.job_id)) is False
    assert await fill(store, "b") == 3
    assert await store.get_load() == await counted(raw)
    await store.stop()


# Notifications


def a_notification(tenant: str, limit: Limit) -> c.CreateJobs:
    url, body = "https://told.example/", {"type": "execution.completed"}
    return notification(tenant, "", url, "told", "execution.completed", body, NOW, new_id(NOW).encode()[-10:], limit)


async def ends(store: Store, node: int, tenant: str, number: int, limit: Limit) -> list[object]:
    """Ends executions of a tenant in one commit, with a notification each. Returns the results of the notifications."""
    job_id = await add_job(store, tenant=tenant)
    for at in range(number):
        await add_execution(store, job_id, NOW + at, tenant)
    claims = await claim_waiting(store, node, NOW + SECOND, limit=number)
    following = [
        c.OnFinish(end.execution_id, end.attempt, end.token, State.COMPLETED, c.CreateJobs(NOW, (job,), quota=quota))
        for end in claims
        for job, quota in [(new_job(spec("immediate", name="told"), tenant=tenant, owner=""),
                            Quota(tenant, ALL_USERS, limit))]
    ]  # fmt: skip
    refused, *answers = await store.apply([c.Finish(node, NOW, tuple(map(ended, claims))), *following])
    assert refused == []
    return answers


async def test_notifications_beyond_a_tenants_limit_are_refused_and_the_ends_are_written(store: Store, node: int):
    limit = Limit("notifications", 5, HOUR)
    answers = await ends(store, node, TENANT, 8, limit)
    assert [type(answer) for answer in answers] == [type(None)] * 5 + [QuotaExceeded] * 3
    found = (await store.list_executions(ExecutionQuery(TENANT)))[::-1]
    assert {one.state for one in found} == {State.COMPLETED}
    assert [one.reason for one in found] == [None] * 5 + [UNSENT] * 3, "each execution says that nobody was notified"
    assert await ends(store, node, "other", 3, limit) == [None] * 3, "each tenant has a limit of its own"


async def test_notifications_use_the_room_of_their_own_tenant_only(make_store: MakeStore):
    store = await started(make_store, Capacity(40, None, 75))
    node = int(await one(store, c.StartNode(NOW, "node-1")))
    answers = await ends(store, node, "hostile", 35, Limit("notifications", 1000, HOUR))
    kinds = [type(answer) for answer in answers]
    assert kinds == [type(None)] * 29 + [InsufficientStorage] * 6
    assert await one(store, c.CreateJobs(NOW, (new_job(tenant="victim"),))) is None
    unsent = [one for one in await store.list_executions(ExecutionQuery("hostile", limit=100)) if one.reason == UNSENT]
    assert len(unsent) == 6
    await store.stop()


async def test_a_notification_of_an_action_of_a_user_is_counted_and_its_refusal_is_reported(store: Store):
    job_id = await add_job(store)
    limit = Limit("notifications", 1, HOUR)
    words = tuple(a_notification(TENANT, limit) for _ in range(2))
    carried = await one(store, c.WithNotifications(c.PauseJob(NOW, TENANT, job_id, "ann", "because"), words))
    assert (carried.answer, [type(error) for error in carried.refused]) == (JobStatus.PAUSED, [QuotaExceeded])


# History


async def history(store: Store, node: int, tenant: str, outcomes: str, at: int = NOW) -> list[str]:
    """Executions a minute apart, oldest first: C for completed, D for a dead letter, O for an open one."""
    job_id = await add_job(store, spec(retry_policy=RetryPolicy(max_retries=0)), tenant=tenant)
    ids = [await add_execution(store, job_id, at + number * MINUTE, tenant) for number in range(len(outcomes))]
    kinds = dict(zip(ids, outcomes, strict=True))
    claims = await claim_waiting(store, node, at + DAY, limit=1000)
    over = [ended(claim, FAILURE) if kinds[claim.execution_id] == "D" else ended(claim) for claim in claims
            if kinds[claim.execution_id] != "O"]  # fmt: skip
    assert await finish(store, node, at + DAY, *over) == []
    return ids


async def kept(store: Store, tenant: str, ids: list[str]) -> str:
    return "".join(["x" if await store.get_execution(tenant, one) else "." for one in ids])


@pytest.mark.parametrize("tenant", [TENANT, "default"])
async def test_the_history_of_a_tenant_is_removed_oldest_first_and_dead_letters_last(
    store: Store, node: int, tenant: str
):
    other = await history(store, node, "other", "CCDC")
    ids = await history(store, node, tenant, "DCOCDCC")
    trimmed = await one(store, c.TrimHistory(tenant, 2, FIRST_ID, 100))
    assert (trimmed.removed, trimmed.last, trimmed.is_end) == (2, ids[3], False)
    assert await kept(store, tenant, ids) == "x.x.xxx"
    trimmed = await one(store, c.TrimHistory(tenant, 3, trimmed.last, 100))
    assert (trimmed.removed, trimmed.last, trimmed.is_end) == (3, ids[6], True)
    assert await kept(store, tenant, ids) == "..x.x..", "two that had completed, and then the oldest dead letter"
    trimmed = await one(store, c.TrimHistory(tenant, 9, trimmed.last, 100))
    assert (trimmed.removed, trimmed.is_end) == (1, True)
    assert await kept(store, tenant, ids) == "..x....", "what is open stays"
    assert (await execution(store, ids[2], tenant)).state is State.RUNNING
    assert await kept(store, "other", other) == "xxxx"
    assert await store.list_attempts(ids[1]) == []
    for one_of in (tenant, "other"):
        assert await totals(store, one_of) == await recount(store, one_of)


async def test_a_trim_reads_a_bounded_number_of_executions(store: Store, node: int):
    ids = await history(store, node, TENANT, "DDDDDCC")
    trimmed = await one(store, c.TrimHistory(TENANT, 1, FIRST_ID, 3))
    assert (trimmed.removed, trimmed.last, trimmed.is_end) == (0, ids[2], False)
    trimmed = await one(store, c.TrimHistory(TENANT, 1, trimmed.last, 3))
    assert (trimmed.removed, trimmed.last) == (1, ids[5])
    assert await kept(store, TENANT, ids) == "xxxxx.x"


async def test_the_executions_of_each_tenant_are_counted(store: Store, node: int):
    assert await store.list_history() == []
    await history(store, node, TENANT, "CDO")
    await history(store, node, "other", "C")
    assert sorted(await store.list_history(), key=lambda held: held.tenant) == [
        Held(TENANT, 3, 2),
        Held("other", 1, 1),
    ]


async def test_the_tenants_of_executions_are_returned(store: Store, node: int):
    mine = await history(store, node, TENANT, "CO")
    (others,) = await history(store, node, "other", "C")
    asked = [*mine, others, new_id(NOW), "no id"]
    assert await store.list_tenants(asked) == {**dict.fromkeys(mine, TENANT), others: "other"}
    assert await store.list_tenants([]) == {}


async def test_a_tenant_that_floods_the_ledger_removes_no_dead_letter_of_another(store: Store, node: int):
    victim = await history(store, node, "victim", "DCDC")
    flood = await history(store, node, "hostile", "C" * 40 + "D" * 5, at=NOW + HOUR)
    retention = Retention(store, HandClock(NOW + 2 * DAY), 365 * DAY / SECOND, 20, lambda: True)
    while await store.count_history() > 20:
        before = await store.count_history()
        await retention.run_once()
        assert await store.count_history() < before
    assert await kept(store, "victim", victim) == "xxxx"
    assert await kept(store, "hostile", flood) == "." * 29 + "x" * 16
    for tenant in ("victim", "hostile"):
        assert await totals(store, tenant) == await recount(store, tenant)


async def test_open_executions_of_one_tenant_remove_no_history_of_another(store: Store, node: int):
    victim = await history(store, node, "victim", "DCDC")
    flood = await history(store, node, "hostile", "O" * 30, at=NOW + HOUR)
    retention = Retention(store, HandClock(NOW + 2 * DAY), 365 * DAY / SECOND, 20, lambda: True)
    for _ in range(5):
        await retention.run_once()
    assert await kept(store, "victim", victim) == "xxxx"
    assert await kept(store, "hostile", flood) == "x" * 30


async def test_a_tenant_with_large_logs_removes_no_logs_of_another(store: Store, node: int, tmp_path: Path):
    clock = HandClock(NOW + 2 * DAY)
    logs = FolderLogs(tmp_path / "logs", 1 << 20, clock)
    await logs.start()
    executions = {tenant: await history(store, node, tenant, "C" * 4) for tenant in ("victim", "hostile")}
    for tenant, ids in executions.items():
        for execution_id in ids[:1] if tenant == "victim" else ids:
            writer = logs.open(execution_id, 1, tenant)
            writer.write("stdout", "x" * 4999 + "\n")
            await writer.close()
    await Retention(store, clock, 365 * DAY / SECOND, 1000, lambda: False, logs, 12_000).run_once()
    assert await logs.size(executions["victim"][0]) == 5000
    assert [await logs.size(one) > 0 for one in executions["hostile"]] == [False, False, False, True]
    await logs.stop()
