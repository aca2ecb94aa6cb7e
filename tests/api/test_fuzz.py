"""Bodies nobody would write, by the hundred: each is taken or refused with a problem; none is a defect."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.processes import Answer, Client, Server

FUZZ = settings(
    max_examples=300, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip

URL = "http://127.0.0.1:9/nobody"  # refused connections are none of our business here
NAMES = (
    "name", "schedule", "payload", "type", "description", "key", "timezone", "retry_policy", "timeout_seconds",
    "priority", "start_at", "end_at", "max_runs", "catch_up", "overlap", "jitter_seconds", "dst", "tags", "url",
    "method", "headers", "body", "expect_status", "delays", "max_retries", "policy", "gap", "", "nothing",
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
# Most of a good job, with some of it replaced: what gets past the first check.
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


@FUZZ
@given(body=st.one_of(values, jobs))
def test_a_create_of_anything(client: Client, body: Any) -> None:
    answer = client.post("/jobs", body)
    assert_sane(answer)
    if answer.status == 201:
        assert_sane(client.get(f"/jobs/{answer.json()['job_id']}"))
        client.delete(f"/jobs/{answer.json()['job_id']}?purge=true")


@FUZZ
@given(body=st.binary(max_size=200))
def test_a_create_of_any_bytes(client: Client, body: bytes) -> None:
    assert_sane(client.post("/jobs", body))


@FUZZ
@given(changes=st.one_of(values, jobs))
def test_a_change_to_anything(client: Client, changes: Any) -> None:
    job_id = client.post("/jobs", good).json()["job_id"]
    assert_sane(client.patch(f"/jobs/{job_id}", changes))
    answer = client.get(f"/jobs/{job_id}")
    assert answer.status == 200, answer
    client.delete(f"/jobs/{job_id}?purge=true")


@FUZZ
@given(schedule=schedules, zone=zones)
def test_a_preview_of_any_schedule(client: Client, schedule: str, zone: str) -> None:
    answer = client.post("/schedules/preview", {"schedule": schedule, "timezone": zone})
    assert_sane(answer)
    if answer.status == 200:
        found = answer.json()["next"]
        assert found == sorted(set(found))


@FUZZ
@given(wish=values)
def test_a_redrive_of_anything(client: Client, wish: Any) -> None:
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
def test_a_list_with_any_filter(client: Client, path: str, query: dict[str, str]) -> None:
    assert_sane(client.get(f"{path}?" + "&".join(f"{name}={quote(value)}" for name, value in query.items())))


@FUZZ
@given(part=texts, action=st.sampled_from(["", "/status", "/next", "/why", "/executions"]))
def test_any_path(client: Client, part: str, action: str) -> None:
    assert_sane(client.get(f"/jobs/{quote(part, safe='')}{action}"))


def test_none_of_it_was_a_defect(server: Server) -> None:
    assert "a request failed" not in server.errors()
