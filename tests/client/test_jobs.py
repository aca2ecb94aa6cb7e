"""Operations on jobs, with a real server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from client.both import until
from duetime.client import Conflict, InvalidRequest, InvalidSchedule, NotFound, PreconditionFailed
from duetime.client.models import Job, Slo
from duetime.domain.job import JobStatus
from duetime.domain.states import State

Define = Callable[..., dict[str, Any]]


def test_a_created_job_reads_back_as_it_was_defined(client: Any, job: Define) -> None:
    definition = job(tags={"team": "sales"}, priority=7, retry_policy={"delays": [1, 2]}, dst={"gap": "skip"})
    created = client.create_job(definition)
    assert created.status == JobStatus.PENDING
    assert created.next_run_time == datetime(2099, 1, 1, tzinfo=UTC)
    read = client.get_job(created.job_id)
    assert isinstance(read, Job)
    assert (read.name, read.tags, read.priority, read.created_by) == (definition["name"], {"team": "sales"}, 7, "ada")
    assert (read.retry_policy.delays, read.dst.gap, read.dst.overlap) == ([1, 2], "skip", "first")
    assert read.payload["url"] == definition["payload"]["url"]
    assert (read.created_at, read.next_run_time) == (created.created_at, created.next_run_time)


def test_a_job_may_be_a_struct_and_its_schedule_a_datetime(client: Any, job: Define) -> None:
    class Anything(msgspec.Struct, omit_defaults=True):
        name: str
        payload: dict[str, str]
        schedule: datetime

    definition = job()
    at = datetime(2098, 5, 4, 3, 2, 1, tzinfo=UTC)
    created = client.create_job(Anything(definition["name"], definition["payload"], at))
    assert created.next_run_time == at


def test_a_create_with_the_same_idempotency_key_returns_the_same_job(client: Any, job: Define) -> None:
    key = job()["name"].replace(" ", "-")
    first, second = (client.create_job(job(), idempotency_key=key) for _ in range(2))
    assert first == second
    assert client.create_job(job()).job_id != client.create_job(job()).job_id


def test_a_list_is_iterated_to_its_end(client: Any, job: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sync", "aio"):
        monkeypatch.setattr(f"duetime.client.{module}.PAGE_ROWS", 2)
    ids = [client.create_job(job()).job_id for _ in range(5)]
    client.create_job(job(name="another"))
    listing = client.list_jobs(name=job()["name"], order="asc", status="PENDING")
    assert [found.job_id for found in listing] == ids
    assert [found.job_id for found in listing] == ids  # a second time
    page = listing.page(3)
    assert ([found.job_id for found in page.jobs], page.total, page.has_more) == (ids[:3], 5, True)
    assert [found.job_id for found in listing.page(3, cursor=page.next_cursor).jobs] == ids[3:]
    assert [found.job_id for found in listing.page(offset=4).jobs] == ids[4:]


def test_a_change_of_an_outdated_version_is_refused(client: Any, job: Define) -> None:
    job_id = client.create_job(job(description="old", priority=3)).job_id
    version = client.get_job(job_id).version
    changed = client.change_job(job_id, {"description": "new", "priority": None}, if_match=version)
    assert (changed.description, changed.priority, changed.version > version) == ("new", 5, True)
    with pytest.raises(PreconditionFailed, match="read it again"):
        client.change_job(job_id, {"description": "newest"}, if_match=version)
    assert client.change_job(job_id, {"description": "newest"}, if_match=f'"{changed.version}"').description == "newest"


def test_a_key_can_have_any_characters(client: Any, job: Define) -> None:
    key = f"b?c#ü%2F {job()['name']}"
    created = client.put_job_by_key(key, job())
    assert created.version == 1
    changed = client.put_job_by_key(key, job(priority=9), if_match=created.version)
    assert (changed.job_id, changed.version > 1) == (created.job_id, True)
    assert (client.get_job(created.job_id).key, client.get_job(created.job_id).priority) == (key, 9)
    with pytest.raises(PreconditionFailed):
        client.put_job_by_key(key, job(), if_match=created.version)


def test_a_job_is_paused_resumed_cancelled_and_purged(client: Any, job: Define) -> None:
    job_id = client.create_job(job()).job_id
    assert client.pause_job(job_id).status == JobStatus.PAUSED
    assert client.job_status(job_id).status == JobStatus.PAUSED
    assert "resumed" in client.job_why(job_id).summary
    assert client.resume_job(job_id).next_run_time == datetime(2099, 1, 1, tzinfo=UTC)
    assert client.job_next(job_id).next == [datetime(2099, 1, 1, tzinfo=UTC)]
    assert client.cancel_job(job_id).status == JobStatus.CANCELLED
    with pytest.raises(Conflict, match="create a new one"):
        client.run_job(job_id)
    assert client.get_job(job_id).status == JobStatus.CANCELLED
    client.purge_job(job_id)
    with pytest.raises(NotFound):
        client.get_job(job_id)


def test_as_many_instants_are_returned_as_requested(client: Any, job: Define) -> None:
    coming = client.job_next(client.create_job(job(schedule="0 9 1 1 *")).job_id, count=3).next
    assert [at.hour for at in coming] == [9, 9, 9]
    assert len({at.year for at in coming}) == 3


def test_a_failed_job_is_retried(client: Any, job: Define) -> None:
    job_id = client.create_job(job("/500", retry_policy={"max_retries": 0})).job_id
    queued = client.run_job(job_id)
    until(lambda: client.get_execution(queued.execution_id).execution.state, lambda state: state == State.FAILED)
    again = client.retry_job(job_id)
    assert (again.job_id, again.execution_id != queued.execution_id) == (job_id, True)


def test_a_refused_job_has_an_error_for_each_wrong_field(client: Any, job: Define) -> None:
    with pytest.raises(InvalidRequest) as refused:
        client.create_job(job(priority=99))
    error = refused.value
    assert [field.pointer for field in error.errors] == ["/priority"]
    assert (error.status, error.error, error.instance) == (400, "INVALID_REQUEST", "/api/v1/jobs")
    assert error.request_id
    assert error.errors[0].message in str(error)
    with pytest.raises(InvalidSchedule):
        client.create_job(job(schedule="0 0 30 2 *"))


def test_objectives_are_read_with_their_types(client: Any, job: Define) -> None:
    made = client.create_job(job(slo={"lateness_seconds": 5, "success": 99.5}, expect_every="25h"))
    read = client.get_job(made.job_id)
    assert (read.slo, read.expect_every) == (Slo(lateness_seconds=5, success=99.5), "25h")
    assert [(one.kind, one.target, one.error_budget_left) for one in read.objectives] == [
        ("lateness", 99, 1), ("success", 99.5, 1)
    ]  # fmt: skip
    assert client.observability_now().jobs is not None
