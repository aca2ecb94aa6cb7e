"""/metrics: on its own port, with and without a token; and behind the API, for the operator."""

from __future__ import annotations

import http.client
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.people import SETTINGS, People
from api.person import FAR, refused
from cluster.processes import Server
from duetime.domain.ids import SHARDS
from metrics import exposition
from metrics.scene import samples_of
from patience import PATIENCE_SECONDS

TOKEN = secrets.token_hex(16)
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Port:
    """The metrics port of a server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("content-type", ""), answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("open"), METRICS_PORT=str(port)).start()
    yield server
    server.close()


def test_the_port_serves_both_forms_and_the_figures_move(open_server: Server, port: int) -> None:
    before = samples_of(Port(port).get()[2].decode())
    job = {"name": "x", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/"}}
    assert open_server.client.post("/jobs", job).status == 201
    status, kind, body = Port(port).get()
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    after = samples_of(body.decode())
    created = 'duetime_jobs_created_total{source="api",type="http_request"}'
    assert after[created] - before[created] == 1
    assert after['duetime_api_requests_total{method="POST",route="/api/v1/jobs",status="201"}'] >= 1
    assert after["duetime_store_commit_seconds_count"] > before["duetime_store_commit_seconds_count"]
    assert after["duetime_shards_owned"] == SHARDS
    assert after["duetime_cluster_nodes"] == 1
    assert after["duetime_store_up"] == 1
    assert after['duetime_service_up{service="timer"}'] == 1
    assert 'duetime_store_jobs{status="PENDING"}' in after  # read every ten seconds at most
    assert after['duetime_store_connections_limit{group="people"}'] == 8
    assert after["process_resident_memory_bytes"] > 1_000_000
    status, kind, body = Port(port).get(accept=PROTOBUF)
    assert (status, kind) == (200, f"{PROTOBUF.replace(';', '; ')}")
    histogram = exposition.families(body)["duetime_store_commit_seconds"][4][0]
    assert exposition.native(exposition.message(exposition.message(histogram)[7][0]))


def test_another_path_of_the_port_is_not_found(port: int, open_server: Server) -> None:
    assert Port(port).get("/jobs")[0] == 404


def test_without_identity_the_api_serves_them_too(open_server: Server) -> None:
    answer = open_server.client.get("/metrics")
    assert answer.status == 200
    assert samples_of(answer.body.decode())["duetime_store_up"] == 1


def test_a_token_closes_the_port(tmp_path: Path) -> None:
    number = free_port()
    server = Server(tmp_path, METRICS_PORT=str(number), METRICS_TOKEN=TOKEN).start()
    try:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Basic x"}):
            status, _, body = Port(number).get(**headers)
            assert (status, b"duetime_" in body) == (401, False), headers
        assert Port(number).get("/other")[0] == 401
        assert Port(number).get(authorization=f"Bearer {TOKEN}")[0] == 200
    finally:
        server.close()
    assert TOKEN not in server.errors()


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """A server whose operator is the tenant acme."""
    server = Server(tmp_path_factory.mktemp("operated"), **SETTINGS, OPERATOR_TENANT="acme").start()
    yield People(server)
    server.close()


def test_behind_the_api_only_admins_of_the_operator_see_them(operated: People) -> None:
    assert operated.as_user("acme", "ada", "admin").get("/metrics").status == 200
    refused(operated.as_user("acme", "ann").get("/metrics"), 403, "FORBIDDEN")
    refused(operated.eve.get("/metrics"), 403, "FORBIDDEN")  # an admin of another tenant
    refused(operated.server.client.get("/metrics"), 401, "UNAUTHORIZED")


def test_with_identity_and_no_operator_nobody_sees_them_there(guarded: Server) -> None:
    people = People(guarded)
    refused(people.ada.get("/metrics"), 403, "FORBIDDEN")
