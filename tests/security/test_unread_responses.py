"""Large responses that clients do not read: pages are limited in bytes, and tenants share the memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from select import select

import pytest

from api.people import JWT_SECRET
from api.person import FAR
from cluster.processes import Answer, Server, wait_until
from patience import PATIENCE_SECONDS
from security.raw import MEGABYTE, forget_peak_memory, peak_memory
from security.test_held_bodies import token

JOBS = 12
PAGE = 4 * MEGABYTE
UNSENT = 64 * MEGABYTE  # of all responses together
READERS = 40
GET = b"GET /api/v1/jobs?limit=100 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n\r\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("unread"), JWT_SECRET=JWT_SECRET).start()
    for tenant in ("evil", "victim"):
        for number in range(JOBS):
            payload = {"url": "http://127.0.0.1:9/", "body": "x" * 1_000_000}
            job = {"name": f"{number}", "schedule": FAR, "payload": payload}
            assert ask(server, tenant, "/jobs", "POST", job).status == 201
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def ask(node: Server, tenant: str, path: str, method: str = "GET", body: object = None) -> Answer:
    return node.client.request(method, path, body, {"Authorization": f"Bearer {token(tenant)}"})


def listed(node: Server, path: str, field: str) -> list[list[str]]:
    """The rows of each page of a list, as JSON."""
    pages, cursor = [], ""
    while True:
        answer = ask(node, "victim", f"{path}?limit=100{cursor}")
        assert answer.status == 200
        assert len(answer.body) < PAGE + MEGABYTE // 2
        page = answer.json()
        pages.append([json.dumps(row) for row in page[field]])
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            return pages
        cursor = f"&cursor={page['next_cursor']}"


def test_a_page_ends_at_four_megabytes_and_the_cursor_continues_it(node: Server) -> None:
    pages = listed(node, "/jobs", "jobs")
    assert list(map(len, pages)) == [4, 4, 4]
    assert len({row for page in pages for row in page}) == JOBS


def unread(held: ExitStack, node: Server, tenant: str) -> socket.socket:
    """A request whose response is not read, on a connection that buffers little of it."""
    line = held.enter_context(socket.socket())
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(PATIENCE_SECONDS)
    line.connect(("127.0.0.1", node.client.port))
    line.sendall(GET % token(tenant).encode())
    return line


def test_unread_responses_take_limited_memory_and_leave_other_tenants_their_share(node: Server) -> None:
    assert node.process is not None
    before = forget_peak_memory(node.process.pid)
    with ExitStack() as held:
        lines = [unread(held, node, "evil") for _ in range(READERS)]
        wait_until(lambda: len(select(lines, [], [], 0)[0]) == READERS, PATIENCE_SECONDS, "all have a response")
        statuses = [line.recv(12) for line in lines]
        assert statuses.count(b"HTTP/1.1 200") <= UNSENT // (3 * MEGABYTE)
        assert statuses.count(b"HTTP/1.1 503") == READERS - statuses.count(b"HTTP/1.1 200")
        answer = ask(node, "victim", "/jobs?limit=100")
        assert (answer.status, len(answer.json()["jobs"])) == (200, 4)
    assert peak_memory(node.process.pid) - before < UNSENT + 64 * MEGABYTE


def test_an_aborted_response_no_longer_counts(node: Server) -> None:
    for _ in range(2):
        with ExitStack() as held:
            lines = [unread(held, node, "evil") for _ in range(READERS // 2)]
            for line in lines:
                assert line.recv(9) == b"HTTP/1.1 "
        wait_until(lambda: ask(node, "evil", "/jobs?limit=100").status == 200, PATIENCE_SECONDS, "there is room again")
