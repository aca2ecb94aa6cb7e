"""Circuits over the API: which users see which parts of them, who may close one, and how `why` explains them."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from api.people import SETTINGS, Known, People
from api.person import refused
from cluster.processes import Receiver, Server, wait_until


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that opens a circuit after two failures, for a long time."""
    settings = {**SETTINGS, "CIRCUIT_BREAKER_THRESHOLD": "2", "CIRCUIT_BREAKER_COOLDOWN": "1h"}
    server = Server(tmp_path_factory.mktemp("strict"), **settings, FREE_REQUESTS_PER_HOUR="0").start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@pytest.fixture
def folks(strict: Server, receiver: Receiver) -> People:
    return People(strict, receiver)


@pytest.fixture
def url() -> Iterator[str]:
    """A target for this test only, which refuses connections."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unheard.getsockname()[1]}/{uuid.uuid4().hex}"


def run_job(who: Known, url: str, state: str) -> str:
    job_id = who.create("immediate", url=f"{url}?secret=1", retry_policy={"max_retries": 0})
    who.wait_for(job_id, state)
    return job_id


def opened(folks: People, url: str) -> dict[str, Any]:
    """The circuit as an admin sees it, after two failures."""
    for _ in range(2):
        run_job(folks.ann, url, "FAILED")
    return wait_until(lambda: circuit(folks.ada, url), 5, "the circuit is there")


def circuit(who: Known, url: str) -> dict[str, Any]:
    (found,) = [it for it in who.get("/circuits").json()["circuits"] if it["url"] == url] or [{}]
    return dict(found)


def test_an_open_circuit_is_listed_with_its_url_but_not_the_query(folks: People, url: str) -> None:
    found = opened(folks, url)
    assert found.keys() == {"circuit", "url", "state", "failures", "opened_at", "next_probe_at"}
    assert (found["state"], found["failures"]) == ("OPEN", 2)
    assert found["opened_at"] < found["next_probe_at"]


def test_a_skipped_execution_was_never_attempted(folks: People, url: str) -> None:
    opened(folks, url)
    job_id = run_job(folks.ann, url, "SKIPPED")
    (execution,) = folks.ann.executions(job_id)
    assert (execution["attempt"], execution["reason"], execution["error_type"]) == (0, "circuit_open", "circuit_open")
    shown = folks.ann.get(f"/executions/{execution['execution_id']}").json()
    assert (shown["execution"]["attempt"], shown["attempts"]) == (0, [])
    logs = folks.ann.get(f"/executions/{execution['execution_id']}/logs").json()["logs"]
    assert "attempt" not in logs
    assert " not sent: " in logs


def test_only_admins_see_the_path_which_may_be_a_secret(folks: People, url: str) -> None:
    opened(folks, url)
    answer = folks.ann.get("/circuits")
    assert answer.status == 200
    assert url.rpartition("/")[2] not in answer.body.decode()
    assert f"{url[: url.find('/', 8)]}/…" in {it["url"] for it in answer.json()["circuits"]}


def test_an_execution_is_skipped_and_why_shows_the_reason(folks: People, url: str) -> None:
    opened(folks, url)
    job_id = run_job(folks.ann, url, "SKIPPED")
    (run,) = folks.ann.get(f"/jobs/{job_id}/executions").json()["executions"]
    assert (run["reason"], run["error_type"]) == ("circuit_open", "circuit_open")
    assert url in run["error_message"]
    waiting = folks.ann.create("every 1h", url=url)
    (hold,) = folks.ann.get(f"/jobs/{waiting}/why").json()["holds"]
    assert f"the circuit of {url} is open since" in hold
    assert "tried again from" in hold
    elsewhere = folks.ann.create("every 1h", url=f"{url}/else")
    assert folks.ann.get(f"/jobs/{elsewhere}/why").json()["holds"] == []


def test_after_an_admin_closes_a_circuit_its_target_is_called_and_the_audit_has_the_admin(
    folks: People, url: str
) -> None:
    number = opened(folks, url)["circuit"]
    refused(folks.ann.delete(f"/circuits/{number}"), 403, "FORBIDDEN")
    refused(folks.eve.delete(f"/circuits/{number}"), 404, "NOT_FOUND")
    for nothing in ("1" * 16, "f" * 16, "1", "x" * 16, number.upper() + "0"):
        assert nothing in refused(folks.ada.delete(f"/circuits/{nothing}"), 404, "NOT_FOUND")
    assert circuit(folks.ada, url)["state"] == "OPEN"
    assert folks.ada.delete(f"/circuits/{number}").json()["circuit"] == number
    assert circuit(folks.ada, url) == {}
    wait_until(lambda: _is_sent(folks, url), 5, "the node knows")
    (entry,) = folks.ada.get(f"/audit?resource={number}").json()["entries"]
    assert (entry["action"], entry["actor"]) == ("circuit.close", "ada")
    assert entry["before"] == {"url": url, "state": "OPEN", "failures": 2}


def _is_sent(folks: People, url: str) -> bool:
    job_id = folks.ann.create("immediate", url=url, retry_policy={"max_retries": 0})
    ended = wait_until(lambda: folks.ann.get(f"/jobs/{job_id}/executions").json()["executions"], 5, "it ran")
    return bool(ended[0]["state"] != "SKIPPED")


def test_another_tenant_does_not_see_the_circuit_and_is_not_delayed(folks: People, url: str) -> None:
    opened(folks, url)
    assert folks.eve.get("/circuits").json() == {"circuits": []}
    run_job(folks.eve, url, "FAILED")
    assert [it["failures"] for it in folks.eve.get("/circuits").json()["circuits"] if it["url"] == url] == [1]
    assert circuit(folks.ada, url)["failures"] == 2
