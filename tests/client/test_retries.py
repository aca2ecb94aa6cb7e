"""Retries: the client never creates or runs a job twice."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from client.both import Pause
from client.proxy import Proxy
from client.script import LOST, answer, problem, scripted
from client.tokens import token
from duetime.client import Conflict, Overloaded, PreconditionFailed, RateLimited, ServerAway, UnknownAnswer

Define = Callable[..., dict[str, Any]]
CREATED = {"job_id": "j", "name": "n", "status": "PENDING"}
QUEUED = {"job_id": "j", "execution_id": "e", "status": "QUEUED"}


def test_a_create_whose_response_was_lost_creates_one_job(make: Any, proxy: Proxy, job: Define) -> None:
    pause = Pause()
    client = make(proxy.url, token(), pause=pause)
    proxy.swallow_answer_to = b"POST /api/v1/jobs "
    created = client.create_job(job())
    assert len(proxy.seen(b"POST /api/v1/jobs ")) == 2
    assert [found.job_id for found in client.list_jobs(name=job()["name"])] == [created.job_id]
    assert len(pause.waits) == 1


def test_a_run_whose_response_was_lost_is_not_repeated(make: Any, proxy: Proxy, job: Define) -> None:
    pause = Pause()
    client = make(proxy.url, token(), pause=pause)
    job_id = client.create_job(job()).job_id
    proxy.swallow_answer_to = b"POST /api/v1/jobs/"
    with pytest.raises(ServerAway, match="check before you send it again") as away:
        client.run_job(job_id)
    assert (away.value.was_sent, pause.waits) == (True, [])
    assert client.job_executions(job_id).page().total == 1


def test_a_read_is_retried(make: Any, proxy: Proxy, job: Define) -> None:
    client = make(proxy.url, token(), pause=Pause())
    job_id = client.create_job(job()).job_id
    proxy.swallow_answer_to = b"GET "
    assert client.get_job(job_id).job_id == job_id
    assert len(proxy.seen(b"GET ")) == 2


def test_the_conflict_of_a_retried_change_has_a_note(make: Any, proxy: Proxy, job: Define) -> None:
    client = make(proxy.url, token(), pause=Pause())
    job_id = client.create_job(job()).job_id
    proxy.swallow_answer_to = b"PATCH "
    with pytest.raises(PreconditionFailed) as refused:
        client.change_job(job_id, {"priority": 1}, if_match=client.get_job(job_id).version)
    assert "may have been carried out" in refused.value.__notes__[0]
    assert client.get_job(job_id).priority == 1


def test_a_retry_waits_while_the_server_is_busy_with_the_first_try(make: Any) -> None:
    with scripted(LOST, problem(409, "CONFLICT"), answer(201, CREATED)) as script:
        assert make(script.url, pause=Pause()).create_job({"name": "n"}).job_id == "j"
    keys = script.header("idempotency-key")
    assert keys[0]
    assert keys == [keys[0]] * 3


def test_a_conflict_at_the_first_try_is_final(make: Any) -> None:
    pause = Pause()
    with scripted(problem(409, "CONFLICT"), answer(201, CREATED)) as script, pytest.raises(Conflict):
        make(script.url, pause=pause).create_job({"name": "n"})
    assert pause.waits == []


@pytest.mark.parametrize(("status", "code"), [(503, "OVERLOADED"), (429, "RATE_LIMIT_EXCEEDED")])
def test_every_call_is_retried_after_429_and_503(make: Any, status: int, code: str) -> None:
    """Nothing was changed, so even a run is retried."""
    pause = Pause()
    with scripted(problem(status, code, retry_after="2"), answer(202, QUEUED)) as script:
        assert make(script.url, pause=pause, jitter=lambda: 0.0).run_job("j").execution_id == "e"
    assert pause.waits == [2.0]


def test_a_retry_after_that_is_too_long_is_raised(make: Any) -> None:
    pause = Pause()
    with scripted(problem(429, "RATE_LIMIT_EXCEEDED", retry_after="31")) as script, pytest.raises(RateLimited):
        make(script.url, pause=pause).get_job("j")
    assert pause.waits == []


def test_an_overload_that_stays_is_raised_in_the_end(make: Any) -> None:
    pause = Pause()
    with scripted(*[problem(503, "OVERLOADED", retry_after="1")] * 3) as script, pytest.raises(Overloaded):
        make(script.url, pause=pause, retries=2).get_job("j")
    assert len(pause.waits) == len(script.requests) - 1 == 2


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_run_is_not_retried_after_an_error_of_a_proxy(make: Any, status: int) -> None:
    pause = Pause()
    with (
        scripted(answer(status, "<html>", "text/html")) as script,
        pytest.raises(UnknownAnswer, match="not a Duetime's response"),
    ):
        make(script.url, pause=pause).run_job("j")
    assert pause.waits == []
    with scripted(answer(status, "<html>", "text/html"), answer(200, {"job_id": "j", "next": []})) as script:
        assert make(script.url, pause=Pause()).job_next("j").next == []


def test_waits_grow_and_have_jitter(make: Any) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        for jitter_share, waits in ((0.0, [0.125, 0.25, 0.5]), (1.0, [0.25, 0.5, 1.0])):
            pause = Pause()
            with pytest.raises(ServerAway, match="duetime serve") as away:  # a run, too: it was certainly not sent
                make(url, pause=pause, jitter=lambda share=jitter_share: share).run_job("j")
            assert (pause.waits, away.value.was_sent) == (waits, False)


def test_a_silent_server_causes_a_timeout(make: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerAway, match=r"did not respond to GET /health within 0.2 s"):
            make(url, timeout_seconds=0.2, retries=0).health()


def test_a_given_idempotency_key_is_sent_and_each_try_has_the_same_body(make: Any) -> None:
    with scripted(LOST, answer(201, CREATED)) as script:
        make(script.url, pause=Pause()).create_job({"name": "ü"}, idempotency_key="mine")
    assert script.header("idempotency-key") == ["mine", "mine"]
    first, second = (request.partition("\r\n\r\n")[2] for request in script.requests)
    assert json.loads(first) == {"name": "ü"}
    assert first == second
