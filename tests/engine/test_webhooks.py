"""Notifications about the end of an execution: each is its own request, as durable as the end itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain.capacity import Capacity
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, SECOND, format_instant
from duetime.domain.job import JobSpec, JobStatus, RetryPolicy, Webhooks
from duetime.domain.retry import LOST_ATTEMPTS
from duetime.domain.states import ErrorType, State
from duetime.engine.retention import Retention
from duetime.ports.executor import Attempt
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery, JobRecord, Store
from duetime.store.sqlite import SqliteStore
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage
from engine.test_chains import lose
from samples import NOW, TENANT, URL, spec

GOOD, BAD = "https://told.example/good", "https://told.example/bad"
FAILURE = Outcome(ErrorType.HTTP_ERROR, "answered 404", 404, "an answer")
SLOW = Outcome(ErrorType.TIMEOUT, "took too long")
GONE = Outcome(ErrorType.HTTP_ERROR, "answered 410", 410)


def telling(**fields: Any) -> JobSpec:
    known = {"name": "report", "retry_policy": RetryPolicy(max_retries=0), "webhooks": Webhooks(GOOD, BAD)}
    return spec("immediate", **known | fields)


def notified(executor: ScriptedExecutor) -> list[Attempt[Any]]:
    return [attempt for attempt in executor.attempts if attempt.payload.url != URL]


async def words(stage: Stage) -> list[JobRecord]:
    jobs = await stage.store.list_jobs(JobQuery(TENANT, limit=100, order="asc"))
    return [job for job in jobs if "duetime.event" in job.spec.tags]


@pytest.mark.parametrize(
    ("outcome", "url", "kind", "state"),
    [
        (Outcome(http_status=200), GOOD, "execution.completed", State.COMPLETED),
        (FAILURE, BAD, "execution.failed", State.FAILED),
        (SLOW, BAD, "execution.failed", State.TIMEOUT),
    ],
)
async def test_the_url_of_the_job_gets_a_notification_of_its_end(
    stage: Stage, executor: ScriptedExecutor, outcome: Outcome, url: str, kind: str, state: State
):
    executor.answer(outcome, URL)
    await stage.join()
    job_id = await stage.add_job(telling(key="k"), owner="bea")
    await stage.tick()
    await stage.tick()
    (sent,) = notified(executor)
    (execution,) = await stage.executions(job_id)
    assert (sent.payload.url, sent.payload.method, sent.payload.headers) == (url, "POST", {})
    assert sent.payload.body == {
        "type": kind,
        "timestamp": format_instant(NOW),
        "data": {
            "job_id": job_id, "job_name": "report", "key": "k", "execution_id": execution.execution_id, "state": state,
            "scheduled_at": format_instant(NOW), "start_time": format_instant(NOW), "end_time": format_instant(NOW),
            "attempt": 1, "trigger": "schedule", "http_status": outcome.http_status, "exit_code": None,
            "error_type": outcome.error_type, "error_message": outcome.error_message,
        },
    }  # fmt: skip
    (job,) = await words(stage)
    field = "on_success" if url == GOOD else "on_failure"
    assert (job.spec.name, job.owner, job.status) == (f"{field} of report", "bea", JobStatus.COMPLETED)
    assert (job.spec.tags, job.spec.key, job.spec.webhooks) == ({"duetime.event": kind}, None, Webhooks())


async def test_no_notification_without_a_url_or_for_an_attempt_that_is_retried(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer([Outcome(ErrorType.HTTP_ERROR, "503", 503), FAILURE], URL)
    await stage.join()
    await stage.add_job(telling(webhooks=Webhooks(on_success=GOOD)))
    await stage.add_job(telling(retry_policy=RetryPolicy(delays=(1,)), url=f"{URL}/2"))
    executor.answer([Outcome(ErrorType.HTTP_ERROR, "503", 503), Outcome(http_status=200)], f"{URL}/2")
    await stage.tick()
    assert await words(stage) == []
    await stage.pass_time(2)
    assert [job.spec.name for job in await words(stage)] == ["on_success of report"]


async def test_a_cancelled_execution_sends_no_notification(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(telling())
    await stage.tick()
    (execution,) = await stage.executions(job_id)
    await stage.cancel_execution(execution.execution_id)
    await stage.settle()
    assert await stage.states(job_id) == [State.CANCELLED]
    assert await words(stage) == []


async def test_a_failed_notification_is_retried_and_causes_no_notification(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE, URL)
    executor.answer([Outcome(ErrorType.HTTP_ERROR, "503", 503), Outcome(http_status=204)], BAD)
    await stage.join()
    await stage.add_job(telling())
    await stage.tick()
    await stage.pass_time(15)
    first, second = (attempt.claim for attempt in notified(executor))
    assert (first.execution_id, first.attempt, second.attempt) == (second.execution_id, 1, 2)
    assert len(await words(stage)) == 1


async def test_a_notification_survives_a_crash_right_after_the_end(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE, URL)
    await stage.join()
    await stage.add_job(telling())
    await stage.turn_timer()  # its end is written, and the notification is not sent yet
    assert len(await words(stage)) == 1
    assert notified(executor) == []
    await lose(stage)
    await stage.join()
    await stage.tick()
    assert len(notified(executor)) == 1


async def test_a_refused_late_result_sends_no_notification(stage: Stage, executor: ScriptedExecutor):
    executor.hold(URL)
    executor.answer(GONE, URL)
    earlier = await stage.join()
    job_id = await stage.add_job(telling())
    await stage.tick()
    later = await stage.join()
    await later.term.reconciler.run_once()
    executor.let_go(URL)
    stage.engine = earlier
    with capture_logs():
        await stage.settle()
    assert await words(stage) == []
    assert (await stage.job(job_id)).status is JobStatus.PENDING, "nor does it pause its job"


async def test_an_execution_that_fails_with_its_node_sends_a_notification(stage: Stage, executor: ScriptedExecutor):
    executor.hold(URL)
    await stage.join()
    job_id = await stage.add_job(telling())
    for _ in range(LOST_ATTEMPTS):
        await stage.tick()
        await lose(stage)
        await stage.join()
        await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert await stage.states(job_id) == [State.FAILED]
    (sent,) = notified(executor)
    assert sent.payload.body["data"]["error_type"] == ErrorType.LEASE_LOST
    assert sent.payload.body["data"]["start_time"] is None


async def test_a_target_with_status_410_pauses_its_job(stage: Stage, executor: ScriptedExecutor):
    executor.answer(GONE)
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    await stage.pass_time(60)
    record = await stage.job(job_id)
    assert (record.status, record.paused_by) == (JobStatus.PAUSED, "duetime")
    assert [event.kind for event in stage.events.list_gathered()].count("job.paused") == 1


async def test_a_notification_is_published_as_an_event_and_not_audited(stage: Stage, executor: ScriptedExecutor):
    """A notification is no change by a user: it follows from the job, which is audited, and from the history."""
    await stage.join()
    await stage.add_job(telling())
    await stage.tick()
    (job,) = await words(stage)
    assert await stage.store.list_audit(AuditQuery(TENANT)) == []
    created = [event.data for event in stage.events.list_gathered() if event.kind == "job.created"]
    assert created == [{"job_id": job.job_id, "name": "on_success of report"}]


async def test_a_full_store_writes_the_end_and_notes_the_missing_notification(
    tmp_path: Path, clock: HandClock, executor: ScriptedExecutor
):
    store = SqliteStore(tmp_path / "small", Capacity(most_jobs=1))
    await store.start()
    try:
        stage = Stage(store, clock, executor)
        await stage.join()
        job_id = await stage.add_job(telling())
        with capture_logs() as logs:
            await stage.tick()
        assert await stage.states(job_id) == [State.COMPLETED]
        (log,) = logs
        assert (log["log_level"], log["tenant"], log["number"]) == ("error", TENANT, 1)
        (ended,) = await store.list_executions(ExecutionQuery(TENANT))
        assert ended.reason == "notification_refused"
        (event,) = [event for event in stage.events.list_gathered() if event.kind == "webhook.refused"]
        assert event.data["error"] == "INSUFFICIENT_STORAGE"
    finally:
        await store.stop()


async def test_more_failures_than_fit_into_a_commit_all_send_notifications(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE, URL)
    await stage.join()
    made = [stage.add_job(telling(webhooks=Webhooks(on_failure=f"{BAD}/{n}"))) for n in range(450)]
    for job in made:
        await job
    await stage.tick()
    await stage.tick()
    assert sorted(attempt.payload.url for attempt in notified(executor)) == sorted(f"{BAD}/{n}" for n in range(450))


# In time, all of it goes


async def test_notifications_and_one_off_jobs_are_removed_after_their_history(
    stage: Stage, store: Store, clock: HandClock, executor: ScriptedExecutor
):
    await stage.join()
    recurring = await stage.add_job(spec("every 1d", max_runs=1, key="k"))
    await stage.add_job(telling())
    await stage.tick()
    await stage.tick()
    assert await store.count_jobs(JobQuery(TENANT)) == 3
    retention = Retention(store, clock, 30 * DAY / SECOND, 1000, lambda: True)
    await retention.run_once()
    assert await store.count_jobs(JobQuery(TENANT)) == 3
    clock.advance(31 * 86_400)
    for _ in range(3):
        await retention.run_once()
        clock.advance(3600)
    assert [job.job_id for job in await store.list_jobs(JobQuery(TENANT))] == [recurring]


async def test_a_node_without_the_housekeeping_sweeps_nothing(
    stage: Stage, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
):
    await stage.join()
    for _ in range(5):
        await stage.add_job(spec("immediate"))
    await stage.tick()
    monkeypatch.setattr("duetime.engine.retention.SWEEP_PAGE", 2)
    clock.advance(31 * 86_400)
    idle = Retention(store, clock, 1, 1000, lambda: False)
    await idle.run_once()
    assert await store.count_jobs(JobQuery(TENANT)) == 5
    busy = Retention(store, clock, 1, 1000, lambda: True)
    left = []
    for _ in range(3):
        assert await busy.run_once() > clock.now()
        left.append(await store.count_jobs(JobQuery(TENANT)))
        clock.advance(1)
    assert left == [3, 1, 0], "a page a turn"
