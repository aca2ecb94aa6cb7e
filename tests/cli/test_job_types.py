"""`duetime job create -f` and `duetime job show` for every type of job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Duetime
from duetime.domain.job import USER_TYPES

SCRIPT = {"argv": ["pg_dump", "my db"], "env": {"PGPASSWORD": "hunter2"}, "cwd": "/var/backups"}
JOBS: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "http_request": ({"url": "https://example.com/x", "headers": {"X-A": "b"}}, ["POST https://example.com/x", "X-A"]),
    "script": (SCRIPT, ["pg_dump 'my db'", "PGPASSWORD", "/var/backups"]),
    "sql_query": (
        {"connection": "reports", "statement": "SELECT ?", "parameters": [5, "a"]}, ["SELECT ?", "reports", '5, "a"'],
    ),
    "python": ({"function": "app.add", "args": [1, "x"], "kwargs": {"y": None}}, ['app.add(1, "x", y=null)']),
}  # fmt: skip


def test_every_type_of_job_is_among_the_examples() -> None:
    assert set(JOBS) == set(USER_TYPES)


@pytest.mark.parametrize("kind", sorted(JOBS))
def test_a_job_of_every_type_is_created_from_a_file_and_shown(scripting: Duetime, tmp_path: Path, kind: str) -> None:
    payload, words = JOBS[kind]
    scripting.ok("connection", "put", "reports", "sqlite:///reports.db")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"name": "f", "type": kind, "schedule": "@yearly", "payload": payload}))
    name = f"typed-{kind}"
    job_id = scripting.json("job", "create", "-f", str(file), "--name", name)["job_id"]
    shown = scripting.ok("job", "show", job_id)
    for word in (name, "@yearly", *words):
        assert word in shown, shown
    assert "hunter2" not in shown
    assert scripting.json("job", "show", name)["type"] == kind
    scripting.ok("connection", "remove", "reports")


EVERY_FIELD = {
    "description": "d", "timezone": "Europe/Berlin", "retry_policy": {"delays": [1, 2], "max_retries": 2},
    "timeout_seconds": 7, "priority": 9, "start_at": "2035-01-01T00:00:00Z", "end_at": "2045-01-01T00:00:00Z",
    "max_runs": 5, "catch_up": {"policy": "all", "window_seconds": 60, "max_runs": 2}, "overlap": "queue_all",
    "jitter_seconds": 3, "dst": {"gap": "skip", "overlap": "both"}, "tags": {"a": "b"},
    "webhooks": {"on_success": "https://example.com/s", "on_failure": "https://example.com/f"},
    "slo": {"lateness_seconds": 5, "on_time": 99, "success": 99.5, "window": "7d"}, "expect_every": "25h",
}  # fmt: skip
FACTS = {"job_id", "created_at", "updated_at", "next_run_time"}


@pytest.mark.parametrize(
    "fields", [{}, EVERY_FIELD, {"delivery": "at_most_once"}], ids=["defaults", "every field", "at most once"]
)
@pytest.mark.parametrize("kind", sorted(JOBS))
def test_the_json_of_show_creates_the_same_job(scripting: Duetime, kind: str, fields: dict[str, Any]) -> None:
    scripting.ok("connection", "put", "reports", "sqlite:///reports.db")
    payload = {field: value for field, value in JOBS[kind][0].items() if field not in ("headers", "env")}
    job = {"name": "same", "type": kind, "schedule": "0 9 * * *", "payload": payload, **fields}
    first = json.loads(scripting.ok("job", "create", "-f", "-", "--json", stdin=json.dumps(job)))["job_id"]
    shown = scripting.json("job", "show", first)
    created = scripting.ok("job", "create", "-f", "-", "--json", stdin=json.dumps(shown))
    again = scripting.json("job", "show", json.loads(created)["job_id"])
    for fact in FACTS:
        assert shown.pop(fact)
        assert again.pop(fact)
    assert again == shown
    scripting.ok("connection", "remove", "reports")


@pytest.mark.parametrize(("kind", "place"), [("http_request", "/payload/headers/X-A"), ("script", "/payload/env")])
def test_hidden_values_must_be_given_again_and_are_never_stored_as_asterisks(
    scripting: Duetime, kind: str, place: str
) -> None:
    job = {"name": "hidden", "type": kind, "schedule": "@yearly", "payload": JOBS[kind][0]}
    first = json.loads(scripting.ok("job", "create", "-f", "-", "--json", stdin=json.dumps(job)))["job_id"]
    answer = scripting("job", "create", "-f", "-", stdin=json.dumps(scripting.json("job", "show", first)))
    assert answer.exit_code == 1
    assert place in answer.stderr


def test_a_script_shows_its_text_and_its_interpreter(scripting: Duetime) -> None:
    job = {"name": "text", "type": "script", "schedule": "@yearly", "payload": {"script": "echo one"}}
    scripting.ok("job", "create", "-f", "-", stdin=json.dumps(job))
    shown = scripting.ok("job", "show", "text")
    assert "echo one" in shown
    assert "/bin/sh" in shown


def test_predecessors_and_notifications_of_a_job_are_shown(scripting: Duetime) -> None:
    first = {"name": "a", "key": "first", "schedule": "@yearly", "payload": {"url": "https://example.com/"}}
    scripting.ok("job", "create", "-f", "-", stdin=json.dumps(first))
    second = {
        "name": "second", "schedule": "on_demand", "payload": {"url": "https://example.com/"}, "after": ["first"],
        "on": "any", "webhooks": {"on_failure": "https://example.com/told"}, "delivery": "at_most_once",
    }  # fmt: skip
    scripting.ok("job", "create", "-f", "-", stdin=json.dumps(second))
    shown = scripting.ok("job", "show", "second")
    for words in ("first (on: any)", "https://example.com/told (on_failure)", "at_most_once"):
        assert words in shown, shown


def test_a_failed_script_shows_its_exit_code(scripting: Duetime) -> None:
    job = {
        "name": "exits", "type": "script", "schedule": "on_demand", "payload": {"script": "exit 3"},
        "retry_policy": {"max_retries": 0},
    }  # fmt: skip
    scripting.ok("job", "create", "-f", "-", stdin=json.dumps(job))
    execution_id = scripting.run_until("exits", "FAILED")["execution_id"]
    assert "exit 3" in scripting.ok("execution", "show", execution_id)


def test_a_request_without_a_url_is_still_refused_here(alone: Duetime) -> None:
    result = alone("job", "create", "-f", "-", "--name", "x", "--schedule", "@daily", stdin='{"type": "http_request"}')
    assert result.exit_code == 2
    assert "a job needs --url" in result.stderr
