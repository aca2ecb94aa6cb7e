"""Random and damaged bodies: each is accepted, or refused with a problem. None causes a defect."""

from __future__ import annotations

import gzip
import json
import re
import socket
import zlib
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.processes import Answer, Client, Server
from patience import PATIENCE_SECONDS
from seeds import IS_STEADY

# A steady run uses the same examples each time, so it needs enough of each kind. A run with a seed uses new ones.
FUZZ = settings(
    max_examples=100 if IS_STEADY else 300, derandomize=IS_STEADY, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip

FUZZ_ALL = settings(FUZZ, max_examples=80 if IS_STEADY else 200)
CODE = re.compile("[A-Z]+(_[A-Z]+)*")
URL = "http://127.0.0.1:9/nobody"  # refused connections do not matter here
NAMES = (
    "name", "schedule", "payload", "type", "description", "key", "timezone", "retry_policy", "timeout_seconds",
    "priority", "start_at", "end_at", "max_runs", "catch_up", "overlap", "jitter_seconds", "dst", "tags", "url",
    "method", "headers", "body", "expect_status", "delays", "max_retries", "policy", "gap", "slo",
    "expect_every", "lateness_seconds", "on_time", "success", "window", "", "nothing",
)  # fmt: skip

texts = st.text(st.characters(codec="utf-8"), max_size=40)
words = st.sampled_from(
    [
        "every 1h", "* * * * *", "0 0 29 2 *", "* * 30 2 *", "@daily", "immediate", "2099-01-01T00:00:00Z", "H H * * *",
        "9999-12-31T23:59:59Z", "UTC", "Europe/Berlin", "skip", "all", "latest", "fixed", "POST", URL, "http_request",
    ]
)  # fmt: skip
numbers = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([2**63, -(10**40)])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), inner, max_size=5)
    ),
    max_leaves=12,
)
good = {"name": "fuzz", "schedule": "2099-01-01T00:00:00Z", "payload": {"url": URL}}
# Most of a good job, with some of it replaced: input that passes the first check.
jobs = st.builds(
    lambda changes: {**good, **changes}, st.dictionaries(st.sampled_from(NAMES[:18]), values, min_size=1, max_size=3)
)
schedules = st.one_of(
    st.text("0123456789*/-,LWH#?@ ", max_size=30),
    st.lists(
        st.from_regex(r"\A[0-9*/,LWH#-]{1,5}\Z") | st.sampled_from(["*", "0", "L", "15W", "5#3", "MON-FRI"]),
        min_size=5,
        max_size=7,
    ).map(" ".join),
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "America/Santiago", "Australia/Lord_Howe"])


def assert_sane(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json", answer
        problem = answer.json()
        assert problem["status"] == answer.status
        assert problem["message"], problem
        assert problem["error"] != "INTERNAL", problem
        assert CODE.fullmatch(problem["error"]), problem


@FUZZ
@given(body=st.one_of(values, jobs))
def test_a_create_with_any_json_has_no_defect(client: Client, body: Any) -> None:
    answer = client.post("/jobs", body)
    assert_sane(answer)
    if answer.status == 201:
        assert_sane(client.get(f"/jobs/{answer.json()['job_id']}"))
        client.delete(f"/jobs/{answer.json()['job_id']}?purge=true")


@FUZZ
@given(body=st.binary(max_size=200))
def test_a_create_with_any_bytes_has_no_defect(client: Client, body: bytes) -> None:
    assert_sane(client.post("/jobs", body))


@FUZZ
@given(changes=st.one_of(values, jobs))
def test_a_change_with_any_fields_has_no_defect(client: Client, changes: Any) -> None:
    job_id = client.post("/jobs", good).json()["job_id"]
    assert_sane(client.patch(f"/jobs/{job_id}", changes))
    answer = client.get(f"/jobs/{job_id}")
    assert answer.status == 200, answer
    client.delete(f"/jobs/{job_id}?purge=true")


@FUZZ
@given(schedule=schedules, zone=zones)
def test_a_preview_of_any_schedule_has_no_defect(client: Client, schedule: str, zone: str) -> None:
    answer = client.post("/schedules/preview", {"schedule": schedule, "timezone": zone})
    assert_sane(answer)
    if answer.status == 200:
        found = answer.json()["next"]
        assert found == sorted(set(found))


@FUZZ
@given(wish=values)
def test_a_redrive_with_any_body_has_no_defect(client: Client, wish: Any) -> None:
    assert_sane(client.post("/dead-letters/redrive", wish))


@FUZZ
@given(
    path=st.sampled_from(["/jobs", "/executions", "/dead-letters"]),
    query=st.dictionaries(
        st.sampled_from(["limit", "offset", "cursor", "sort", "order", "status", "state", "from", "to", "name", "tag"]),
        texts,
        max_size=3,
    ),
)
def test_a_list_with_any_filter_has_no_defect(client: Client, path: str, query: dict[str, str]) -> None:
    assert_sane(client.get(f"{path}?" + "&".join(f"{name}={quote(value)}" for name, value in query.items())))


@FUZZ
@given(part=texts, action=st.sampled_from(["", "/status", "/next", "/why", "/executions"]))
def test_any_path_has_no_defect(client: Client, part: str, action: str) -> None:
    assert_sane(client.get(f"/jobs/{quote(part, safe='')}{action}"))


NDJSON = "application/x-ndjson"
# Every route that accepts a body, with a valid body.
ROUTES: dict[str, tuple[str, str, Any]] = {
    "create": ("POST", "/jobs", good),
    "create, by the framework": ("POST", "/jobs/", good),
    "put by key": ("PUT", "/jobs/by-key/fuzz-{job}", good),
    "put": ("PUT", "/jobs/{job}", {"priority": 3, "tags": {"a": "b"}}),
    "patch": ("PATCH", "/jobs/{job}", {"description": "x", "payload": {"body": [1, {"a": None}]}}),
    "batch": ("POST", "/jobs:batch", [good, good]),
    "preview": ("POST", "/schedules/preview", {"schedule": "0 9 * * *", "timezone": "Europe/Berlin", "count": 3}),
    "redrive": ("POST", "/dead-letters/redrive", {"ids": ["01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f"], "limit": 3}),
}
routes = st.sampled_from(list(ROUTES))
# Text that no encoder writes, in place of a value, a name or any other token.
ODD = [
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 400, b"0.1" + b"0" * 400, b"01", b"+1", b".5", b"1.",
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"', b'"\\u0000"', b'"\x00"', b"\x00", b'"\xff"', b'"\xc0\x80"',
    b'"\xf4\x90\x80\x80"', b'"\\x"', b'"\n"', b"'a'", b"undefined", b"None", b"True", b"//", b"/* */ 1", b"", b",",
    b"[" * 40 + b"]" * 40, b"[" * 2000, b'{"a":' * 40 + b"1" + b"}" * 40, b'{"a":1,"a":2}', b"\xef\xbb\xbf",
    b'"' + b"x" * 3000 + b'"', b"[" + b"0," * 3000 + b"0]", b"\n", b"{}", b"[]", b"null",
    b"}", b"]", b":", b"true", b"\xff\xfe",
]  # fmt: skip
_TOKEN = re.compile(rb'"[^"]*"|[0-9]+|null|[{}\[\]:,]')


@st.composite
def mangled(draw: st.DrawFn, body: bytes) -> bytes:
    """A good body with random damage: tokens replaced or doubled, bytes flipped, the end cut off."""
    for _ in range(draw(st.integers(1, 3))):
        spans = [match.span() for match in _TOKEN.finditer(body)] or [(0, len(body))]
        start, end = draw(st.sampled_from(spans))
        match draw(st.sampled_from(["replace", "replace", "replace", "insert", "double", "flip", "cut"])):
            case "replace":
                body = body[:start] + draw(st.sampled_from(ODD)) + body[end:]
            case "insert":
                body = body[:start] + draw(st.sampled_from(ODD) | st.binary(max_size=8)) + body[start:]
            case "double":
                body = body[:end] + body[start:]
            case "flip":
                body = body[:start] + bytes([draw(st.integers(0, 255))]) + body[start + 1 :]
            case "cut":
                body = body[:start]
    return body


class Told:
    """The state of a server before and after a request: a refused request changes nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.job = client.post("/jobs", good).json()["job_id"]
        self._before = self._look()

    def _look(self) -> tuple[Any, ...]:
        job = self._client.get(f"/jobs/{self.job}")
        totals = [self._client.get(path).json()["total"] for path in ("/jobs?limit=1", "/executions?limit=1")]
        return (job.body, job.headers["etag"], *totals)

    def check(self, answer: Answer) -> None:
        assert_sane(answer)
        if answer.status >= 400 or (answer.status == 200 and answer.json().get("created_count") == 0):
            self.check_unchanged()
        for job in _made(answer):
            assert_sane(self._client.get(f"/jobs/{job}"))
            assert self._client.delete(f"/jobs/{job}?purge=true").status == 200

    def check_unchanged(self) -> None:
        assert self._look() == self._before


def _made(answer: Answer) -> list[str]:
    outcome = answer.json() if answer.status < 300 else {}
    return outcome.get("created") or ([outcome["job_id"]] if answer.status == 201 else [])


@FUZZ_ALL
@given(route=routes, data=st.data())
def test_a_damaged_body_has_no_defect(client: Client, route: str, data: st.DataObject) -> None:
    outcome = Told(client)
    method, path, body = ROUTES[route]
    content = data.draw(mangled(json.dumps(body).encode()))
    outcome.check(
        client.request(method, path.replace("{job}", outcome.job), content, {"content-type": "application/json"})
    )


@FUZZ_ALL
@given(data=st.data(), count=st.integers(1, 4))
def test_damaged_lines_have_no_defect(client: Client, data: st.DataObject, count: int) -> None:
    outcome = Told(client)
    line = json.dumps(good).encode()
    content = b"\n".join(data.draw(mangled(line) | st.just(line) | st.binary(max_size=20)) for _ in range(count))
    answer = client.post("/jobs:batch", content, content_type=NDJSON)
    assert answer.status == 200
    assert answer.json()["created_count"] == len(answer.json()["created"])
    outcome.check(answer)


@FUZZ_ALL
@given(route=routes, content=st.binary(max_size=200))
def test_any_bytes_to_any_route_have_no_defect(client: Client, route: str, content: bytes) -> None:
    outcome = Told(client)
    method, path, _ = ROUTES[route]
    outcome.check(client.request(method, path.replace("{job}", outcome.job), content))


@pytest.mark.parametrize("depth", [33, 2000, 100_000])
@pytest.mark.parametrize("route", ROUTES)
def test_deep_nesting_is_refused_on_every_route(client: Client, route: str, depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    job = json.dumps(good).encode()[:-2] + b', "body": ' + deep + b"}}"
    for content in (deep, b"[" + job + b"]" if route == "batch" else job):
        outcome = Told(client)
        method, path, _ = ROUTES[route]
        answer = client.request(method, path.replace("{job}", outcome.job), content)
        assert answer.status == 400 or answer.json()["created_count"] == 0, answer
        outcome.check(answer)


ENCODED = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: b"\x0b\x02\x80" + body,
    "utf-16": lambda body: body.decode().encode("utf-16"),
    "utf-32": lambda body: body.decode().encode("utf-32"),
    "utf-7": lambda body: body.replace(b"{", b"+AHs-"),
}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("route", ROUTES)
def test_a_body_in_another_encoding_is_refused(client: Client, route: str, encoding: str) -> None:
    outcome = Told(client)
    method, path, body = ROUTES[route]
    named = "content-type" if encoding.startswith("utf") else "content-encoding"
    headers = {named: f"application/json; charset={encoding}" if encoding.startswith("utf") else encoding}
    content = ENCODED[encoding](json.dumps(body).encode())
    answer = client.request(method, path.replace("{job}", outcome.job), content, headers)
    assert answer.status == 400, answer
    outcome.check(answer)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "multipart/form-data", "a", "", "\xff"]
)
@pytest.mark.parametrize("route", ROUTES)
def test_a_body_of_another_type_is_read_as_json_or_refused(client: Client, route: str, kind: str) -> None:
    for content in (None, b"a=b", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'):
        outcome = Told(client)
        method, path, body = ROUTES[route]
        body = json.dumps(body).encode() if content is None else content
        outcome.check(client.request(method, path.replace("{job}", outcome.job), body, {"content-type": kind}))


def in_chunks(body: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
# The headers, the bytes before the body or in place of it, and whether the server accepts it.
FRAMES = {
    "in chunks": (CHUNKED, in_chunks, True),
    "gzip in name only": (b"Content-Encoding: gzip\r\n" + CHUNKED, in_chunks, True),
    "chunks of no length": (CHUNKED, lambda body: b"ZZ\r\n" + body, False),
    "chunks of a huge length": (CHUNKED, lambda body: b"fffffffffffffffff\r\n" + body, False),
    "chunked, then not": (b"Transfer-Encoding: chunked, identity", bytes, False),
    "both lengths": (b"Content-Length: 5\r\n" + CHUNKED, bytes, False),
    "two lengths": (b"Content-Length: 5\r\nContent-Length: 6", bytes, False),
    "a negative length": (b"Content-Length: -5", bytes, False),
    "a length that is no number": (b"Content-Length: 0x10", bytes, False),
    "a length that is too short": (b"Content-Length: 5", bytes, False),
}
UNENDED = {
    "a chunk": (CHUNKED, lambda body: b"%x\r\n%b" % (len(body) + 1, body)),
    "chunks": (CHUNKED, lambda body: in_chunks(body)[:-5]),
    "a length that is too long": (b"Content-Length: 100000", bytes),
}


def send_framed(client: Client, route: str, job: str, header: bytes, content: bytes, end: bool) -> Answer | None:
    """Returns the response, or None if there was none. `end`: close the connection after writing."""
    method, path, _ = ROUTES[route]
    head = f"{method} /api/v1{path.replace('{job}', job)} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head.encode() + header + b"\r\n\r\n" + content)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return _read_answer(connection)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("route", ROUTES)
def test_a_chunked_body_is_accepted_and_an_invalid_length_is_refused(client: Client, route: str, frame: str) -> None:
    outcome = Told(client)
    header, framed, taken = FRAMES[frame]
    content = framed(json.dumps(ROUTES[route][2]).encode())
    answer = send_framed(client, route, outcome.job, header, content, end=False)
    assert answer is not None
    assert (answer.status < 300) is taken, answer
    outcome.check(answer)


@pytest.mark.parametrize("frame", UNENDED)
@pytest.mark.parametrize("route", ROUTES)
def test_an_incomplete_body_has_no_effect(client: Client, route: str, frame: str) -> None:
    outcome = Told(client)
    header, framed = UNENDED[frame]
    content = framed(json.dumps(ROUTES[route][2]).encode())
    answer = send_framed(client, route, outcome.job, header, content, end=True)
    assert answer is None
    outcome.check_unchanged()


def _read_answer(connection: socket.socket) -> Answer | None:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    if not received:
        return None
    head, _, body = received.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    return Answer(int(status.split(" ")[1]), headers, body[: int(headers["content-length"])])


def test_the_log_has_no_defect(server: Server) -> None:
    assert "a request failed" not in server.errors()
