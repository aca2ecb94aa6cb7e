"""Executions, their logs, and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from client.both import until
from client.proxy import Proxy
from client.tokens import token
from duetime.client import NotFound
from duetime.domain.states import OPEN, State, Trigger

Define = Callable[..., dict[str, Any]]


@pytest.fixture
def ended(client: Any) -> Callable[[str], Any]:
    def wait(execution_id: str) -> Any:
        return until(lambda: client.get_execution(execution_id), lambda found: found.execution.state not in OPEN)

    return wait


def test_an_execution_has_its_attempts(client: Any, job: Define, ended: Callable[[str], Any]) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    created = client.create_job(job("/hello"))
    queued = client.run_job(created.job_id)
    detail = ended(queued.execution_id)
    execution, (attempt,) = detail.execution, detail.attempts
    assert (execution.state, execution.trigger, execution.http_status) == (State.COMPLETED, Trigger.MANUAL, 200)
    assert before < execution.scheduled_at <= execution.start_time <= execution.end_time
    assert (attempt.attempt, attempt.response) == (1, "this is hello")
    assert list(client.job_executions(created.job_id)) == [execution]
    assert client.job_executions(created.job_id).page().total == 1
    assert list(client.job_executions(created.job_id, state=State.FAILED)) == []


def test_executions_are_found_by_state_job_and_time(client: Any, job: Define, ended: Callable[[str], Any]) -> None:
    job_id = client.create_job(job()).job_id
    execution = ended(client.run_job(job_id).execution_id).execution
    at = execution.scheduled_at
    within = {"job_id": job_id, "since": at, "until": at + timedelta(seconds=1)}
    assert list(client.list_executions(state="COMPLETED", **within)) == [execution]
    assert list(client.list_executions(job_id=job_id, until=at)) == []
    with pytest.raises(ValueError, match="has no timezone"):
        client.list_executions(since=datetime(2027, 1, 1)).page()  # noqa: DTZ001 (that is the point)


def test_a_waiting_execution_is_cancelled(client: Any, job: Define, ended: Callable[[str], Any]) -> None:
    job_id = client.create_job(job("/500", retry_policy={"delays": [86_400]})).job_id
    execution_id = client.run_job(job_id).execution_id
    until(lambda: client.get_execution(execution_id).execution.state, lambda state: state == State.RETRYING)
    client.cancel_execution(execution_id)
    assert ended(execution_id).execution.state == State.CANCELLED


def test_dead_letters_are_run_again(client: Any, job: Define, ended: Callable[[str], Any]) -> None:
    job_id = client.create_job(job("/500", retry_policy={"max_retries": 0})).job_id
    dead = [ended(client.run_job(job_id).execution_id).execution for _ in range(3)]
    assert {found.execution_id for found in client.dead_letters(job_id=job_id)} == {one.execution_id for one in dead}
    assert all(found.dead for found in dead)
    named = client.redrive([dead[0].execution_id])
    assert (named.redriven, len(named.executions)) == (1, 1)
    retried = client.retry_execution(dead[1].execution_id)
    assert retried.job_id == job_id
    assert dead[2].execution_id in {
        found.execution_id for found in client.dead_letters(job_id=job_id, http_status="5xx")
    }
    assert list(client.dead_letters(job_id=job_id, error_type="timeout")) == []
    assert client.redrive(job_id=job_id, http_status=404).redriven == 0
    paced = client.redrive(job_id=job_id, http_status=500, limit=50, per_second=100)
    assert paced.redriven >= 1
    assert paced.last_at is not None
    with pytest.raises(ValueError, match="given no ids"):
        client.redrive([])  # the server would redrive all of them


def test_logs_are_read_whole_and_followed_to_their_end(client: Any, job: Define, ended: Callable[[str], Any]) -> None:
    execution_id = client.run_job(client.create_job(job("/hello")).job_id).execution_id
    ended(execution_id)
    logs = client.logs(execution_id)
    assert "this is hello" in logs.logs
    assert logs.size_bytes == len(logs.logs.encode())
    entries = list(client.follow_logs(execution_id))
    assert "this is hello" in "\n".join(entry.text for entry in entries)
    assert list(client.follow_logs(execution_id, after=entries[-1].number)) == []
    with pytest.raises(NotFound):
        next(iter(client.follow_logs("0198c0de-1234-7abc-8def-0123456789ab")))


def test_a_followed_log_resumes_after_a_broken_connection(make: Any, proxy: Proxy, client: Any, job: Define) -> None:
    job_id = client.create_job(job("/500", retry_policy={"delays": [86_400]})).job_id
    execution_id = client.run_job(job_id).execution_id
    following = make(proxy.url, token()).follow_logs(execution_id)
    first = next(following)
    proxy.cut()
    client.cancel_execution(execution_id)
    entries = [first, *following]
    assert entries == list(client.follow_logs(execution_id))
    numbers = [entry.number for entry in entries]
    assert numbers == sorted(set(numbers))
    asked = [request.decode().lower() for request in proxy.seen(b"GET ")]
    assert [f"last-event-id: {first.number}" in request for request in asked] == [False, True]
