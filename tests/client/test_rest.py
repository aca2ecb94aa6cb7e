"""Schedules, keys, the audit, the cluster, health, credentials and errors."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from client.script import answer, problem, scripted
from client.tokens import FREE_REQUESTS, token
from duetime.client import (
    ClientClosed,
    Conflict,
    Forbidden,
    InsufficientStorage,
    MethodNotAllowed,
    Problem,
    RateLimited,
    Unauthorized,
    UnknownAnswer,
)
from duetime.client.models import Execution

Define = Callable[..., dict[str, Any]]


def test_a_schedule_is_previewed(client: Any) -> None:
    preview = client.preview_schedule(
        "0 9 * * *", timezone="Europe/Berlin", after=datetime(2027, 1, 1, tzinfo=UTC), count=2, dst={"gap": "skip"}
    )
    assert preview.next == [datetime(2027, 1, 1, 8, tzinfo=UTC), datetime(2027, 1, 2, 8, tzinfo=UTC)]
    assert preview.description


def test_a_key_is_made_used_and_revoked(client: Any, make: Any, server: str) -> None:
    made = client.create_api_key("for a test", user_id="bob", scopes=["read"], expires_in_days=1)
    assert made.key not in repr(made)
    bob = make(server, made.key)
    assert list(bob.list_jobs()) == []
    with pytest.raises(Forbidden):
        bob.create_job({})
    (listed,) = [key for key in client.list_api_keys().keys if key.key_id == made.key_id]
    assert (listed.user_id, listed.scopes, listed.revoked_at) == ("bob", ["read"], None)
    assert client.revoke_api_key(made.key_id).key_id == made.key_id
    with pytest.raises(Unauthorized):
        bob.list_jobs().page()


def test_a_signing_key_is_returned_and_rotated_and_is_in_no_repr(make: Any, server: str) -> None:
    client = make(server, token(tenant=f"t-{uuid.uuid4()}"))
    before = client.get_signing_key()
    assert (before.version, before.rotated_at, before.others) == (1, None, ())
    after = client.rotate_signing_key(overlap_seconds=3600)
    assert (after.version, after.rotated_by) == (2, "ada")
    assert [(one.version, one.secret) for one in after.others] == [(1, before.secret)]
    assert client.get_signing_key() == after
    assert "whsec_" not in repr(after) + repr(after.others)
    with pytest.raises(Conflict):
        client.rotate_signing_key()
    assert client.rotate_signing_key(overlap_seconds=0).others == ()


def test_the_audit_lists_who_changed_what(client: Any, job: Define) -> None:
    job_id = client.create_job(job()).job_id
    client.pause_job(job_id)
    entries = list(client.audit(resource=job_id, since=datetime(2020, 1, 1, tzinfo=UTC)))
    assert [(entry.actor, entry.action) for entry in entries] == [("ada", "job.pause"), ("ada", "job.create")]
    assert [entry.action for entry in client.audit(resource=job_id, action="job.pause")] == ["job.pause"]


def test_the_cluster_and_its_health_are_returned(client: Any) -> None:
    cluster = client.cluster()
    assert cluster.node.id in [node.id for node in cluster.nodes]
    assert client.health().components == {}
    health = client.health(verbose=True)
    assert (health.status, health.components["database"], health.memory.resident_bytes > 0) == ("ok", "healthy", True)


def test_a_degraded_server_returns_its_health(make: Any) -> None:
    with scripted(answer(503, {"status": "degraded", "components": {"database": "unhealthy: x"}})) as script:
        assert make(script.url).health(verbose=True).components == {"database": "unhealthy: x"}


def test_a_path_without_a_method_can_be_requested(client: Any) -> None:
    answered = client.request("POST", "/api/v1/schedules/preview", body={"schedule": "@daily", "count": 1})
    assert len(answered["next"]) == 1
    assert client.request("GET", "/api/v1/jobs", query={"limit": 1, "name": "no such job"})["jobs"] == []
    with pytest.raises(MethodNotAllowed):
        client.request("DELETE", "/api/v1/cluster")


def test_url_and_token_come_from_the_environment(make: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUETIME_URL", f"{server}/")
    monkeypatch.setenv("DUETIME_TOKEN", token())
    assert make().cluster().nodes
    with pytest.raises(Unauthorized):
        make(token="").cluster()
    monkeypatch.delenv("DUETIME_URL")
    assert make().url == "http://127.0.0.1:8080"


def test_a_jwt_and_an_api_key_are_sent_in_their_own_headers(make: Any) -> None:
    with scripted(*[answer(200, {"status": "ok"})] * 2) as script:
        make(script.url, "dt_1_2").health()
        make(script.url, "a.b.c").health()
    assert script.header("x-api-key") == ["dt_1_2", ""]
    assert script.header("authorization") == ["", "bearer a.b.c"]


@pytest.mark.parametrize("bad", ["localhost:8080", "ftp://a", "http://"])
def test_an_invalid_url_is_refused_at_once(make: Any, bad: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a server"):
        make(bad)


def test_an_invalid_token_is_refused_and_not_shown(make: Any) -> None:
    with pytest.raises(ValueError, match="neither a JWT nor an API key") as refused:
        make("http://127.0.0.1", "geheim\nX-Evil: 1")
    assert "geheim" not in str(refused.value)


def test_too_many_requests_have_retry_after(make: Any, server: str) -> None:
    free = make(server, token(f"free-{uuid.uuid4()}", "user", "free"))
    for _ in range(FREE_REQUESTS):
        free.list_jobs().page(1)
    with pytest.raises(RateLimited) as limited:
        free.list_jobs().page(1)
    assert limited.value.retry_after > 0


def test_a_redirect_is_not_followed_with_the_key(make: Any) -> None:
    with scripted() as other, scripted(answer(307, {}, location=f"{other.url}/api/v1/jobs/j")) as script:
        with pytest.raises(UnknownAnswer, match="use that URL") as unknown:
            make(script.url, "dt_1_2").get_job("j")
        assert (unknown.value.status, other.requests) == (307, [])
        assert other.url in str(unknown.value)


def test_a_newer_server_is_understood(make: Any) -> None:
    """A response with an unknown field and an unknown value."""
    body = {"execution_id": "e", "job_id": "j", "state": "PONDERING", "trigger": "moon", "mood": {"is": "good"},
            "scheduled_at": "2027-01-01T09:00:00.123Z"}  # fmt: skip
    with scripted(answer(200, {"execution": body, "attempts": [], "new": 1})) as script:
        execution = make(script.url).get_execution("e").execution
    at = datetime(2027, 1, 1, 9, 0, 0, 123_000, tzinfo=UTC)
    assert execution == Execution(execution_id="e", job_id="j", state="PONDERING", trigger="moon", scheduled_at=at)


def test_an_unknown_code_is_a_problem(make: Any) -> None:
    with scripted(problem(418, "TEAPOT", "pour")) as script, pytest.raises(Problem, match="418 TEAPOT: pour") as raised:
        make(script.url).get_job("j")
    assert type(raised.value) is Problem


def test_a_full_store_has_its_numbers(make: Any) -> None:
    body = {"type": "memory", "title": "full", "status": 507, "error": "INSUFFICIENT_STORAGE", "message": "full",
            "current": 9, "limit": 10, "requested": 2}  # fmt: skip
    with scripted(answer(507, body)) as script, pytest.raises(InsufficientStorage) as full:
        make(script.url).create_job({"name": "n"})
    error = full.value
    assert (error.type, error.current, error.limit, error.requested) == ("memory", 9, 10, 2)


def test_a_response_of_another_server_raises_unknown_answer(make: Any) -> None:
    with scripted(answer(200, "hello", "text/plain")) as script, pytest.raises(UnknownAnswer, match="check the URL"):
        make(script.url).get_job("j")


def test_any_id_is_quoted_as_one_segment_of_the_path(make: Any) -> None:
    with scripted(problem(404, "NOT_FOUND")) as script, pytest.raises(Problem):
        make(script.url).get_job("../api-keys?x=1#y")
    assert script.requests[0].startswith(f"GET /api/v1/jobs/{quote('../api-keys?x=1#y', safe='')} ")


def test_a_closed_client_raises_client_closed(make: Any, server: str) -> None:
    client = make(server)
    client.close()
    with pytest.raises(ClientClosed, match="create another one"):
        client.health()


def test_the_client_imports_nothing_of_the_server() -> None:
    code = (
        "import sys; from duetime.client import AsyncClient, Client; "
        "print(*[name for name in sys.modules if name.startswith('duetime.')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "duetime.client.sync" in loaded
    shared = ("duetime.client", "duetime.domain", "duetime.wire")
    assert [name for name in loaded if not name.startswith(shared)] == []
