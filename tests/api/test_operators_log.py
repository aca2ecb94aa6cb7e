"""The log of a node: more lines with LOG_LEVEL=debug, and a warning about unknown settings in the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.person import Person
from cluster.processes import Receiver, Server, wait_until
from patience import PATIENCE_SECONDS

LOOPS = {"a page of due jobs was fired", "results of attempts were written", "executions were claimed"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def whole_lines(server: Server) -> list[dict[str, Any]]:
    """Returns all complete lines."""
    lines = server.errors().split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def events(server: Server) -> set[str]:
    return {line["event"] for line in whole_lines(server)}


def test_debug_logs_the_work_of_the_loops(node: Server, receiver: Receiver) -> None:
    node.start(LOG_LEVEL="debug")
    person = Person(node.client, receiver)
    job_id = person.create("immediate")
    person.wait_for_end(job_id)
    assert node.client.post(f"/jobs/{job_id}/run").status == 202
    wait_until(lambda: events(node) >= LOOPS, PATIENCE_SECONDS, "pages, claims and results stand in the log")


def test_other_levels_do_not_log_the_loops(node: Server, receiver: Receiver) -> None:
    node.start(LOG_LEVEL="info")
    person = Person(node.client, receiver)
    job_id = person.create("immediate")
    person.wait_for_end(job_id)
    assert node.client.post(f"/jobs/{job_id}/run").status == 202
    assert not events(node) & LOOPS


def test_unknown_settings_in_the_environment_are_logged(node: Server) -> None:
    node.start({"HTTP_ADDR": ":9000", "METRICS_ENABLED": "true"})
    assert events(node) == {"HTTP_ADDR in the environment is not read: Duetime has no such setting: set HOST and PORT"}


def test_the_default_level_tells_what_ran(node: Server, receiver: Receiver) -> None:
    node.start(LOG_LEVEL="info")
    person = Person(node.client, receiver)
    job_id = person.create("immediate")
    (execution,) = person.wait_for_end(job_id)
    wait_until(lambda: "execution completed" in events(node), PATIENCE_SECONDS, "the end is in the log")
    (line,) = [line for line in whole_lines(node) if line["event"] == "execution completed"]
    assert (line["job_id"], line["execution_id"], line["job"]) == (job_id, execution["execution_id"], person.name)
    assert (line["http_status"], line["level"]) == (200, "info")
    assert {"job created", "execution completed"} <= events(node)


def test_requests_are_logged_with_their_tenant_and_id(node: Server, receiver: Receiver) -> None:
    node.start(LOG_LEVEL="warning,api=debug")
    job_id = Person(node.client, receiver).create()
    assert node.client.get(f"/jobs/{job_id}", x_request_id="mine").status == 200
    assert node.client.get("/health").status == 200
    wait_until(lambda: len(whole_lines(node)) >= 3, PATIENCE_SECONDS, "each request has a line")
    create, read, health = whole_lines(node)
    assert (create["route"], create["status"], create["tenant"]) == ("/api/v1/jobs", 201, "default")
    assert (read["route"], read["request_id"]) == ("/api/v1/jobs/{job_id}", "mine")
    assert (health["route"], health["tenant"]) == ("/health", "")
    assert job_id not in node.errors()
