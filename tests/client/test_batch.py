"""Batches of jobs: sent in chunks, with a result for each job, and not retried if that is unsafe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.proxy import Proxy
from client.tokens import token
from duetime.client import BatchInterrupted, ServerAway, Unauthorized

Define = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duetime.client.batch.CHUNK_JOBS", 2)


def test_jobs_are_read_as_they_are_sent_and_refused_by_their_index(client: Any, job: Define) -> None:
    def jobs() -> Iterator[dict[str, Any]]:
        for priority in (1, 99, 2, 3, 98):  # three chunks; the second and the last are refused
            yield job(priority=priority)

    result = client.create_jobs(jobs())
    assert (result.created_count, result.refused_count) == (3, 2)
    assert [client.get_job(job_id).priority for job_id in result.created] == [1, 2, 3]
    assert [(item.index, item.error) for item in result.refused] == [(1, "INVALID_REQUEST"), (4, "INVALID_REQUEST")]
    assert result.refused[0].errors[0]["pointer"] == "/priority"
    assert client.create_jobs([]).created == []


def test_the_bytes_of_a_chunk_are_limited_too(make: Any, proxy: Proxy, job: Define, monkeypatch: Any) -> None:
    monkeypatch.setattr("duetime.client.batch.CHUNK_JOBS", 1000)
    monkeypatch.setattr("duetime.client.batch.CHUNK_BYTES", 3000)
    result = make(proxy.url, token()).create_jobs(job(description="x" * 1900) for _ in range(4))
    assert result.created_count == 4
    assert len(proxy.seen(b"POST /api/v1/jobs:batch")) == 2


def test_a_chunk_without_a_response_is_not_sent_again(make: Any, proxy: Proxy, job: Define) -> None:
    client = make(proxy.url, token())
    definitions = [job() for _ in range(5)]

    def jobs() -> Iterator[dict[str, Any]]:
        for index, definition in enumerate(definitions):
            if index == 2:
                proxy.swallow_answer_to = b"POST /api/v1/jobs:batch"
            yield definition

    with pytest.raises(BatchInterrupted, match="check before you send them again") as interrupted:
        client.create_jobs(jobs())
    error = interrupted.value
    assert (error.result.created_count, error.unknown_from, error.unknown_count) == (2, 2, 2)
    assert isinstance(error.__cause__, ServerAway)
    assert client.list_jobs(name=definitions[0]["name"]).page().total == 4  # those two were created once


def test_after_a_chunk_was_refused_as_a_whole_no_result_is_unknown(make: Any, server: str, job: Define) -> None:
    with pytest.raises(BatchInterrupted, match="send those again") as interrupted:
        make(server, "no-token").create_jobs([job()])
    assert (interrupted.value.unknown_from, interrupted.value.unknown_count) == (0, 0)
    assert isinstance(interrupted.value.__cause__, Unauthorized)


async def test_an_asynchronous_iterator_of_jobs_is_read_too(server: str, job: Define) -> None:
    from duetime.client import AsyncClient

    async def jobs() -> Any:
        for _ in range(3):
            yield job()

    async with AsyncClient(server, token()) as client:
        assert (await client.create_jobs(jobs())).created_count == 3
