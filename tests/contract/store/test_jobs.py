"""Jobs: create, change, pause, resume, cancel, purge."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, IdempotencyKeyReused, NotFound, PreconditionFailed
from duetime.domain.instants import HOUR, MINUTE
from duetime.domain.job import JobSpec, JobStatus, RetryPolicy
from duetime.domain.payloads import HttpRequest
from duetime.domain.plan import Skipped
from duetime.domain.states import State
from duetime.ports.store import JobQuery, JobRecord, SkippedRecord, Store
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    execution,
    executions_of,
    finish,
    fire,
    job_of,
    new_id,
    new_job,
    one,
    spec,
)
from snapshot import recount, snapshot, totals

LATER = NOW + HOUR


def change(job_id: str, job: JobSpec, version: int = 1, due_at: int | None = LATER, **fields: Any) -> c.ChangeJob:
    made = c.ChangeJob(LATER, TENANT, job_id, version, job.key, job.name, job.type, True, due_at, job)
    return msgspec.structs.replace(made, **fields)


def pause(job_id: str, tenant: str = TENANT) -> c.PauseJob:
    return c.PauseJob(LATER, tenant, job_id, "ann", "holidays")


# Create


async def test_a_created_job_is_read_as_it_was_written(store: Store):
    job = spec(
        "*/5 * * * *", key="sales", tags={"team": "sales", "ünï": "\"'"}, retry_policy=RetryPolicy(delays=(1, 2)),
        description="line\nbreak ☃ 𝄞", priority=0, max_runs=3,
    )  # fmt: skip
    made = new_job(job)
    assert await one(store, c.CreateJobs(NOW, (made,))) is None
    expected = JobRecord(
        made.job_id, TENANT, "ann", 1, JobStatus.PENDING, NOW, NOW, NOW + 5 * MINUTE, None, 0, 0, 0, 0, 0, None, None,
        None, None, None, job,
    )  # fmt: skip
    assert await store.get_job(TENANT, made.job_id) == expected
    assert await store.get_job_by_key(TENANT, "sales") == expected
    (timer,) = await store.list_due_timers(made.due_at, 10)
    assert (timer.job_id, timer.due_at, timer.version, timer.fired, timer.recurs, timer.created_at, timer.spec) == (
        made.job_id, made.due_at, 1, 0, True, NOW, job,
    )  # fmt: skip


async def test_many_jobs_are_created_in_one_commit(store: Store):
    jobs = tuple(new_job() for _ in range(1000))
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    listed = await store.list_jobs(JobQuery(TENANT, limit=2000, order="asc"))
    assert [job.job_id for job in listed] == [job.job_id for job in jobs]


async def test_a_used_key_is_refused_and_none_of_the_jobs_is_created(store: Store):
    await add_job(store, spec(key="sales"))
    before = await snapshot(store)
    refused = await one(store, c.CreateJobs(NOW, (new_job(), new_job(spec(key="sales")), new_job())))
    assert isinstance(refused, Conflict)
    assert await snapshot(store) == before


async def test_the_error_for_a_used_key_names_it(store: Store):
    await add_job(store, spec(key="sales"))
    refused = await one(store, c.CreateJobs(NOW, (new_job(spec(key="sales")),)))
    assert isinstance(refused, Conflict)
    assert "'sales'" in refused.message


async def test_a_create_with_the_same_key_twice_is_refused(store: Store):
    twice = c.CreateJobs(NOW, (new_job(spec(key="sales")), new_job(spec(key="sales"))))
    assert isinstance(await one(store, twice), Conflict)
    assert await store.count_jobs(JobQuery(TENANT)) == 0


async def test_a_key_is_unique_in_its_tenant_only(store: Store):
    mine = await add_job(store, spec(key="sales"))
    theirs = await add_job(store, spec(key="sales"), tenant="other")
    assert (await job_of(store, mine)).job_id == mine
    found = await store.get_job_by_key("other", "sales")
    assert found is not None
    assert found.job_id == theirs


async def test_jobs_without_a_key_never_conflict(store: Store):
    assert await add_job(store) != await add_job(store)
    assert await store.count_jobs(JobQuery(TENANT)) == 2


async def test_a_second_create_with_the_same_id_is_refused(store: Store):
    made = new_job()
    assert await one(store, c.CreateJobs(NOW, (made,))) is None
    before = await snapshot(store)
    assert isinstance(await one(store, c.CreateJobs(NOW, (made,))), Conflict)
    assert await snapshot(store) == before


async def test_creates_that_share_a_commit_keep_their_own_instants(store: Store):
    jobs = [new_job(now=NOW + n) for n in range(5)]
    results = await store.apply([c.CreateJobs(NOW + n, (job,)) for n, job in enumerate(jobs)])
    assert results == [None] * 5
    assert [(await job_of(store, job.job_id)).created_at for job in jobs] == [NOW + n for n in range(5)]


# Idempotency


def create_once(key: str = "k1", fingerprint: str = "f1", **fields: Any) -> c.CreateJobs:
    record = c.IdempotencyRecord(fields.get("tenant", TENANT), key, fingerprint, f"answer to {fingerprint}")
    return c.CreateJobs(NOW, (new_job(**fields),), record)


async def test_a_repeat_with_the_same_key_and_body_gets_the_first_response_and_creates_nothing(store: Store):
    assert await one(store, create_once()) is None
    before = await snapshot(store)
    assert await one(store, create_once()) == "answer to f1"
    assert await snapshot(store) == before
    assert await store.get_response(TENANT, "k1") == ("f1", "answer to f1")


async def test_a_repeat_with_another_body_is_refused(store: Store):
    await one(store, create_once())
    before = await snapshot(store)
    assert isinstance(await one(store, create_once(fingerprint="f2")), IdempotencyKeyReused)
    assert await snapshot(store) == before


async def test_a_repeat_within_the_same_batch_creates_one_job(store: Store):
    assert await store.apply([create_once(), create_once()]) == [None, "answer to f1"]
    assert await store.count_jobs(JobQuery(TENANT)) == 1


async def test_idempotency_keys_are_separate_for_each_tenant(store: Store):
    assert await one(store, create_once()) is None
    assert await one(store, create_once(fingerprint="f2", tenant="other")) is None
    assert await store.get_response("other", "k1") == ("f2", "answer to f2")


async def test_a_refused_create_stores_no_idempotency_key(store: Store):
    await add_job(store, spec(key="sales"))
    refused = await one(store, create_once(job=spec(key="sales")))
    assert isinstance(refused, Conflict)
    assert await store.get_response(TENANT, "k1") is None


async def test_an_unused_idempotency_key_has_no_response(store: Store):
    assert await store.get_response(TENANT, "k1") is None


# Change


async def test_a_change_replaces_the_spec_and_the_next_run_and_increments_the_version(store: Store):
    job_id = await add_job(store, spec(key="old"))
    job = spec("every 2h", name="better", key="new", tags={"a": "b"})
    assert await one(store, change(job_id, job, due_at=LATER + 5)) == 2
    found = await job_of(store, job_id)
    assert (found.version, found.spec, found.due_at, found.updated_at) == (2, job, LATER + 5, LATER)
    assert (found.created_at, found.status) == (NOW, JobStatus.PENDING)
    assert await store.get_job_by_key(TENANT, "old") is None
    assert await store.get_job_by_key(TENANT, "new") == found


async def test_a_change_of_another_version_is_refused(store: Store):
    job_id = await add_job(store)
    before = await snapshot(store)
    for version in (0, 2):
        assert isinstance(await one(store, change(job_id, spec("every 2h"), version)), PreconditionFailed)
    assert await snapshot(store) == before


async def test_the_second_of_two_changes_of_the_same_version_is_refused(store: Store):
    job_id = await add_job(store)
    first, second = await store.apply([change(job_id, spec(name="first")), change(job_id, spec(name="second"))])
    assert first == 2
    assert isinstance(second, PreconditionFailed)
    assert (await job_of(store, job_id)).spec.name == "first"


async def test_a_change_to_a_used_key_is_refused(store: Store):
    await add_job(store, spec(key="sales"))
    job_id = await add_job(store, spec(key="costs"))
    before = await snapshot(store)
    assert isinstance(await one(store, change(job_id, spec(key="sales"))), Conflict)
    assert await snapshot(store) == before


async def test_a_change_may_keep_its_own_key(store: Store):
    job_id = await add_job(store, spec(key="sales"))
    assert await one(store, change(job_id, spec("every 2h", key="sales"))) == 2


async def test_a_change_of_an_unknown_job_is_refused(store: Store):
    job_id = await add_job(store, tenant="other")
    for unknown in (new_id(), job_id):
        assert isinstance(await one(store, change(unknown, spec())), NotFound)


async def test_a_cancelled_job_cannot_be_changed(store: Store):
    job_id = await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, job_id))
    version = (await job_of(store, job_id)).version
    assert isinstance(await one(store, change(job_id, spec(), version)), Conflict)


async def test_a_completed_job_that_gets_a_next_run_is_pending_again(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    await finish(store, node, NOW, ended(claim))
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    assert await one(store, change(job_id, spec("every 1h", max_runs=1), restart=True)) == 2
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.fired, found.runs) == (JobStatus.PENDING, LATER, 0, 1)


async def test_a_changed_completed_job_without_a_next_run_stays_completed(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    await finish(store, node, NOW, ended(claim))
    assert await one(store, change(job_id, spec("immediate", name="renamed"), due_at=None, recurs=False)) == 2
    found = await job_of(store, job_id)
    assert (found.status, found.spec.name, found.due_at) == (JobStatus.COMPLETED, "renamed", None)


async def test_a_changed_paused_job_stays_paused(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    assert await one(store, change(job_id, spec("every 2h"), 2, due_at=LATER + 5)) == 3
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.resume_at) == (JobStatus.PAUSED, None, LATER + 5)
    assert await store.next_due_at() is None


async def test_a_change_without_a_new_schedule_does_not_undo_a_fire_since_the_job_was_read(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=2))
    read = await job_of(store, job_id)
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await finish(store, node, NOW + MINUTE, ended(claim))
    renamed = spec(max_runs=2, name="renamed")
    assert await one(store, change(job_id, renamed, due_at=read.due_at, replan=False)) == 2
    found = await job_of(store, job_id)
    assert (found.due_at, found.fired, found.spec) == (NOW + 2 * MINUTE, 1, renamed)
    await fire(store, node, NOW + 2 * MINUTE)
    assert [e.scheduled_at for e in await executions_of(store, job_id)] == [NOW + MINUTE, NOW + 2 * MINUTE]


async def test_a_changed_paused_job_with_the_same_schedule_keeps_its_due_instant(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    assert await one(store, change(job_id, spec(name="renamed"), 2, due_at=None, replan=False)) == 3
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.resume_at) == (JobStatus.PAUSED, None, NOW + MINUTE)


async def test_a_completed_job_that_continues_keeps_its_count(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=1))
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await finish(store, node, NOW + MINUTE, ended(claim))
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    await one(store, change(job_id, spec(max_runs=3)))
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.fired) == (JobStatus.PENDING, LATER, 1)


async def test_a_job_that_is_changed_to_have_no_more_runs_is_completed(store: Store):
    job_id = await add_job(store)
    assert await one(store, change(job_id, spec(max_runs=1), due_at=None)) == 2
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED


async def test_instants_skipped_by_a_change_are_in_the_ledger(store: Store):
    job_id = await add_job(store)
    spans = (
        Skipped(job_id, TENANT, NOW + MINUTE, NOW + 3 * MINUTE, 2, "changed"),
        Skipped(job_id, TENANT, NOW + 4 * MINUTE, LATER, 56, "changed"),
    )
    await one(store, change(job_id, spec("every 2h"), skipped=spans))
    assert await store.list_skipped(job_id, 10) == [
        SkippedRecord(NOW + 4 * MINUTE, LATER, 56, "changed", LATER),
        SkippedRecord(NOW + MINUTE, NOW + 3 * MINUTE, 2, "changed", LATER),
    ]


@pytest.mark.parametrize("deed", ["change", "cancel"])
async def test_instants_fired_since_the_job_was_read_are_not_skipped(store: Store, node: int, deed: str):
    job_id = await add_job(store)
    until_at = NOW + 2 * MINUTE + 1
    span = Skipped(job_id, TENANT, NOW + MINUTE, until_at, 2, "changed")
    command: c.Command = {
        "change": change(job_id, spec("every 2h"), skipped=(span,)),
        "cancel": c.CancelJob(LATER, TENANT, job_id, (span,)),
    }[deed]
    await fire(store, node, NOW + MINUTE)
    await one(store, command)
    assert await store.list_skipped(job_id, 10) == [SkippedRecord(NOW + 2 * MINUTE, until_at, None, "changed", LATER)]


@pytest.mark.parametrize("deed", ["change", "cancel"])
async def test_a_change_skips_nothing_if_all_instants_were_fired_since_the_job_was_read(
    store: Store, node: int, deed: str
):
    job_id = await add_job(store)
    span = Skipped(job_id, TENANT, NOW + MINUTE, NOW + MINUTE + 1, 1, "changed")
    command: c.Command = {
        "change": change(job_id, spec("every 2h"), skipped=(span,)),
        "cancel": c.CancelJob(LATER, TENANT, job_id, (span,)),
    }[deed]
    await fire(store, node, NOW + MINUTE)
    await one(store, command)
    assert await store.list_skipped(job_id, 10) == []


# Pause and resume


async def test_a_paused_job_is_not_due_and_shows_the_user_that_paused_it(store: Store):
    job_id = await add_job(store)
    assert await one(store, pause(job_id)) is JobStatus.PAUSED
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.resume_at) == (JobStatus.PAUSED, None, NOW + MINUTE)
    assert (found.paused_by, found.paused_at, found.pause_reason) == ("ann", LATER, "holidays")
    assert await store.next_due_at() is None
    assert await store.list_due_timers(2**50, 10) == []


async def test_a_pause_of_a_paused_job_changes_nothing(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    before = await snapshot(store)
    assert await one(store, c.PauseJob(LATER + 1, TENANT, job_id, "bob", "other")) is JobStatus.PAUSED
    assert await snapshot(store) == before


async def test_a_job_that_has_ended_cannot_be_paused(store: Store, node: int):
    done = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    await finish(store, node, NOW, ended(claim))
    cancelled = await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    for job_id in (done, cancelled):
        assert isinstance(await one(store, pause(job_id)), Conflict)


async def test_a_pause_of_an_unknown_job_is_refused(store: Store):
    theirs = await add_job(store, tenant="other")
    for job_id in (new_id(), theirs):
        assert isinstance(await one(store, pause(job_id)), NotFound)


def resume(job_id: str, version: int = 2, due_at: int | None = LATER, skipped: Skipped | None = None) -> c.ResumeJob:
    return c.ResumeJob(LATER, TENANT, job_id, version, due_at, skipped)


async def test_a_resumed_job_is_due_again_and_the_missed_instants_are_in_the_ledger(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    passed = Skipped(job_id, TENANT, NOW + MINUTE, LATER, 59, "paused")
    assert await one(store, resume(job_id, skipped=passed)) is JobStatus.PENDING
    found = await job_of(store, job_id)
    assert (found.status, found.due_at, found.resume_at) == (JobStatus.PENDING, LATER, None)
    assert (found.paused_by, found.paused_at, found.pause_reason) == (None, None, None)
    assert await store.list_skipped(job_id, 10) == [SkippedRecord(NOW + MINUTE, LATER, 59, "paused", LATER)]


async def test_a_resumed_job_without_further_runs_is_completed(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    assert await one(store, resume(job_id, due_at=None)) is JobStatus.COMPLETED


async def test_only_a_paused_job_can_be_resumed(store: Store):
    pending, cancelled = await add_job(store), await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    for job_id in (pending, cancelled):
        for version in (1, 2):
            assert isinstance(await one(store, resume(job_id, version)), Conflict)


async def test_a_resume_based_on_an_older_version_is_refused(store: Store):
    job_id = await add_job(store)
    await one(store, pause(job_id))
    await one(store, change(job_id, spec("every 2h"), 2))
    before = await snapshot(store)
    assert isinstance(await one(store, resume(job_id, 2)), Conflict)
    assert await snapshot(store) == before


async def test_a_resume_of_an_unknown_job_is_refused(store: Store):
    theirs = await add_job(store, tenant="other")
    for job_id in (new_id(), theirs):
        assert isinstance(await one(store, resume(job_id)), NotFound)


# Cancel and purge


async def test_a_cancelled_job_is_not_due_and_its_waiting_executions_are_cancelled(store: Store, node: int):
    job_id = await add_job(store, spec("every 1m", overlap="queue_all"))
    _, (running,) = await fire(store, node, NOW + MINUTE)
    await fire(store, node, NOW + 2 * MINUTE)  # held
    manual = await add_execution(store, job_id, LATER)
    assert await one(store, c.CancelJob(LATER, TENANT, job_id)) == [running.execution_id]
    found = await job_of(store, job_id)
    assert (found.status, found.due_at) == (JobStatus.CANCELLED, None)
    states = {e.execution_id: e.state for e in await executions_of(store, job_id)}
    assert states.pop(running.execution_id) is State.RUNNING
    assert set(states.values()) == {State.CANCELLED}
    assert (await execution(store, manual)).ended_at == LATER
    assert await totals(store) == await recount(store)
    assert await claim_waiting(store, node, LATER) == []


async def test_a_running_execution_of_a_cancelled_job_is_stopped_on_any_node(store: Store, node: int):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await one(store, c.CancelJob(LATER, TENANT, job_id))
    successor = await one(store, c.StartNode(LATER, "node-1"))
    (expired,) = await store.list_expired_claims(successor, 10)
    assert expired.execution_id == claim.execution_id
    assert expired.cancel_requested


@pytest.mark.parametrize("is_paused", [True, False])
async def test_due_instants_of_a_cancelled_job_are_in_the_ledger(store: Store, is_paused: bool):
    job_id = await add_job(store)
    if is_paused:
        await one(store, pause(job_id))
    span = Skipped(job_id, TENANT, NOW + MINUTE, LATER, 59, "cancelled")
    await one(store, c.CancelJob(LATER, TENANT, job_id, (span,)))
    assert await store.list_skipped(job_id, 10) == [SkippedRecord(NOW + MINUTE, LATER, 59, "cancelled", LATER)]


async def test_a_cancel_of_a_cancelled_job_changes_nothing(store: Store, node: int):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await one(store, c.CancelJob(LATER, TENANT, job_id))
    before = await snapshot(store)
    assert await one(store, c.CancelJob(LATER + 1, TENANT, job_id)) == [claim.execution_id]
    assert await snapshot(store) == before


async def test_a_cancel_of_an_unknown_job_is_refused(store: Store):
    theirs = await add_job(store, tenant="other")
    for job_id in (new_id(), theirs):
        assert isinstance(await one(store, c.CancelJob(NOW, TENANT, job_id)), NotFound)
    assert (await job_of(store, theirs, "other")).status is JobStatus.PENDING


async def test_a_purge_removes_a_job_with_all_its_history(store: Store, node: int):
    kept = await add_job(store)
    job_id = await add_job(store, spec("every 1m", key="sales"))
    _, claims = await fire(store, node, NOW + MINUTE)
    await finish(store, node, NOW + MINUTE, *map(ended, claims))
    await add_execution(store, job_id, LATER)
    mine = next(claim for claim in claims if claim.job_id == job_id)
    assert await one(store, c.PurgeJob(TENANT, job_id)) is False
    assert await store.get_job(TENANT, job_id) is None
    assert await store.get_job_by_key(TENANT, "sales") is None
    assert await executions_of(store, job_id) == []
    assert await store.list_attempts(mine.execution_id) == []
    assert [timer.job_id for timer in await store.list_due_timers(2**50, 10)] == [kept]
    assert len(await executions_of(store, kept)) == 1
    assert await totals(store) == await recount(store)
    assert (await totals(store))["jobs"] == 1


async def test_the_key_of_a_purged_job_can_be_used_again(store: Store):
    job_id = await add_job(store, spec(key="sales"))
    await one(store, c.PurgeJob(TENANT, job_id))
    await add_job(store, spec(key="sales"))


async def test_a_long_history_is_purged_in_pages_and_the_job_is_cancelled_meanwhile(store: Store, node: int):
    job_id = await add_job(store, spec(key="sales"))
    for n in range(5):
        await add_execution(store, job_id, NOW + n)
    assert await one(store, c.PurgeJob(TENANT, job_id, 2)) is True
    found = await job_of(store, job_id)
    assert (found.status, found.due_at) == (JobStatus.CANCELLED, None)
    assert [e.state for e in await executions_of(store, job_id)] == [State.CANCELLED] * 3
    assert await claim_waiting(store, node, LATER) == []
    assert await totals(store) == await recount(store)
    assert await one(store, c.PurgeJob(TENANT, job_id, 2)) is True
    assert await one(store, c.PurgeJob(TENANT, job_id, 2)) is False
    assert await store.get_job(TENANT, job_id) is None
    assert await executions_of(store, job_id) == []
    assert await totals(store) == await recount(store)


async def test_a_history_of_exactly_one_page_is_purged(store: Store):
    job_id = await add_job(store)
    await add_execution(store, job_id)
    answers = [await one(store, c.PurgeJob(TENANT, job_id, 1)) for _ in range(2)]
    assert answers == [True, False]
    assert await store.get_job(TENANT, job_id) is None


async def test_a_job_with_a_running_execution_cannot_be_purged(store: Store, node: int):
    job_id = await add_job(store)
    await fire(store, node, NOW + MINUTE)
    before = await snapshot(store)
    assert isinstance(await one(store, c.PurgeJob(TENANT, job_id)), Conflict)
    assert await snapshot(store) == before


async def test_a_purge_of_an_unknown_job_is_refused(store: Store):
    theirs = await add_job(store, tenant="other")
    for job_id in (new_id(), theirs):
        assert isinstance(await one(store, c.PurgeJob(TENANT, job_id)), NotFound)


@pytest.mark.parametrize("name", ["ends with ]", '["x"]', "back\\slash", "'; DROP TABLE jobs; --", "𝄞" * 60])
async def test_a_name_with_any_characters_is_read_unchanged(store: Store, name: str):
    job_id = await add_job(store, spec(name=name))
    await one(store, c.PauseJob(LATER, TENANT, job_id, name, name))
    found = await job_of(store, job_id)
    assert (found.spec.name, found.paused_by, found.pause_reason) == (name, name, name)


async def test_a_body_with_nul_is_read_unchanged_everywhere(store: Store, node: int):
    """The API refuses NUL and names the field; but jobs that are stored already must not get stuck."""
    job = spec("immediate", payload=HttpRequest("https://hook.example/run", body={"a": "x\0y", "b": ["\0"]}))
    job_id = await add_job(store, job, now=NOW)
    assert (await job_of(store, job_id)).spec == job
    assert [timer.spec for timer in await store.list_due_timers(NOW, 10)] == [job]
    await add_execution(store, job_id)
    assert [claim.spec for claim in await claim_waiting(store, node, NOW)] == [job]
    renamed = msgspec.structs.replace(job, name="renamed", tags={"a": "b"})
    assert await one(store, change(job_id, renamed)) == 2
    assert [found.spec for found in await store.list_jobs(JobQuery(TENANT, tag=("a", "b")))] == [renamed]


async def test_a_definition_with_nul_in_its_tags_or_name_breaks_no_list(store: Store):
    kept = await add_job(store, spec(tags={"a": "b"}))
    await store.apply([c.CreateJobs(NOW, (new_job(bad),)) for bad in (spec(name="x\0"), spec(tags={"a": "\0"}))])
    listed = await store.list_jobs(JobQuery(TENANT, tag=("a", "b"), name="report"))
    assert [found.job_id for found in listed] == [kept]
