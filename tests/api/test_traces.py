"""Traces of a real node, sent to a real receiver of OTLP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.person import Person
from cluster.processes import Receiver, Server
from collector import Collector, collecting

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TREE = {
    "create": None, "execution": "create", "fire": "execution", "queue": "execution", "attempt": "execution",
    "record": "execution", "backoff": "execution",
}  # fmt: skip


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def run(node: Server, receiver: Receiver, path: str, **headers: str) -> tuple[str, str]:
    """Runs a job at once. Returns its id and the execution's id, once it has ended."""
    person = Person(node.client, receiver)
    body = {
        "name": "traced", "schedule": "immediate", "retry_policy": {"backoff": "fixed", "initial_delay_seconds": 1},
        "payload": {"url": receiver.url(path), "headers": {"X-Key": "s3cret"}, "body": "s3cret"},
    }  # fmt: skip
    made = node.client.post("/jobs", body, **headers)
    assert made.status == 201, made
    job_id = made.json()["job_id"]
    (execution,) = person.wait_for_end(job_id)
    return job_id, execution["execution_id"]


def stop(node: Server) -> None:
    node.signal(signal.SIGTERM)
    assert node.wait(10) == 0


def test_a_trace_joins_creation_attempts_and_records(node: Server, receiver: Receiver, collector: Collector) -> None:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TRACES_SAMPLE_RATIO": "1", "OTEL_SERVICE_NAME": "jobs"}
    node.start(**settings)
    job_id, execution_id = run(node, receiver, "/fail-until/2", traceparent=CALLER)
    spans = collector.of(execution_id, 9)
    names = sorted(span.name for span in spans)
    assert names == ["attempt", "attempt", "backoff", "create", "execution", "fire", "queue", "record", "record"]
    ids = {span.span_id: span for span in spans}
    assert len(ids) == 9
    for span in spans:
        parent = ids[span.parent_id].name if span.parent_id else None
        assert parent == TREE[span.name], span
        assert span.ended_at >= span.began_at
    assert [span.attributes["http.response.status_code"] for span in spans if span.name == "attempt"] == [500, 200]
    (request,) = [span for span in collector.spans if span.name == "request"]
    assert request.links == [(CALLER[3:35], CALLER[36:52])]
    assert request.attributes["duetime.job.id"] == job_id
    assert collector.resources[0]["service.name"] == "jobs"
    assert b"s3cret" not in b"".join(collector.bodies)


def test_spans_under_way_are_sent_at_the_stop(node: Server, receiver: Receiver, collector: Collector) -> None:
    node.start(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, TRACES_SAMPLE_RATIO="1")
    _, execution_id = run(node, receiver, "/ok?token=s3cret")
    stop(node)
    assert b"s3cret" not in b"".join(collector.bodies)
    assert {span.name for span in collector.of(execution_id, 6)} == set(TREE) - {"backoff"}


@pytest.mark.parametrize("ratio", ["0", "1"])
def test_the_endpoint_may_come_from_the_standard_variable(
    node: Server, receiver: Receiver, collector: Collector, ratio: str
) -> None:
    node.start({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}, TRACES_SAMPLE_RATIO=ratio)
    _, execution_id = run(node, receiver, "/ok")
    stop(node)
    assert len({span.trace_id for span in collector.spans} & {execution_id.replace("-", "")}) == int(ratio)


def test_a_collector_that_is_away_costs_no_work_and_no_clean_stop(node: Server, receiver: Receiver) -> None:
    node.start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9/s3cret", TRACES_SAMPLE_RATIO="1")
    for _ in range(3):
        run(node, receiver, "/ok")
    stop(node)
    assert "spans are lost" in node.errors()
    assert "s3cret" not in node.errors()


def test_a_target_is_told_that_it_is_traced_only_if_it_is(collector: Collector, tmp_path: Path) -> None:
    flags: dict[str, Any] = {}
    for ratio, endpoint in (("1", collector.url), ("0", collector.url), ("1", "")):
        server = Server(tmp_path / f"{ratio}{bool(endpoint)}")
        server.start(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, TRACES_SAMPLE_RATIO=ratio)
        flags[f"{ratio} {bool(endpoint)}"] = asked_with(server)[-2:]
        server.close()
    assert flags == {"1 True": "01", "0 True": "00", "1 False": "00"}


def asked_with(server: Server) -> str:
    """Returns the `traceparent` header that a target gets."""
    found: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(self.headers["traceparent"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as target:
        url = f"http://127.0.0.1:{target.server_address[1]}"
        made = server.client.post("/jobs", {"name": "a", "schedule": "immediate", "payload": {"url": url}})
        assert made.status == 201, made
        target.handle_request()
    return found[0]
