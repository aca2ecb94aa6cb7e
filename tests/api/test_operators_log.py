"""The log of a node: more lines with LOG_LEVEL=debug, and a warning about unknown settings in the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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


def events(server: Server) -> set[str]:
    """Returns the events of all complete lines."""
    lines = server.errors().split("\n")[:-1]
    return {json.loads(line)["event"] for line in lines if line.startswith("{")}


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
