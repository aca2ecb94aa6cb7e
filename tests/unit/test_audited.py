"""The form in which the audit stores a definition."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from duetime.domain.audit import Entry, entry
from duetime.domain.audited import LONGEST_ENTRY, changed_fields, kept
from duetime.domain.identity import LOCAL
from duetime.domain.job import HttpJob, JobSpec, RetryPolicy, ScriptJob
from duetime.domain.payloads import HttpRequest, Script

LONG = "é" * 1000


def job(**fields: Any) -> HttpJob:
    payload = HttpRequest(
        "https://a.example", **{name: fields.pop(name) for name in ("body", "headers") if name in fields}
    )
    return HttpJob(**{"name": "a", "schedule": "@daily", "payload": payload} | fields)


@pytest.mark.parametrize(
    ("before", "after", "was", "now"),
    [
        (job(), job(), {}, {}),
        (job(name="a"), job(name="b"), {"name": "a"}, {"name": "b"}),
        (job(body=1), job(body=[2]), {"payload": {"body": 1}}, {"payload": {"body": [2]}}),
        (job(), job(max_runs=3, body=LONG), {"max_runs": None, "payload": {"body": None}},
         {"max_runs": 3, "payload": {"body": {"sha256": sha256(LONG.encode()).hexdigest(), "bytes": 2000}}}),
    ],
)  # fmt: skip
def test_a_change_is_stored_as_the_changed_fields(before: JobSpec, after: JobSpec, was: Any, now: Any):
    assert changed_fields(before, after) == (was, now)


def test_a_changed_policy_is_stored_as_a_whole():
    was, now = changed_fields(job(), job(retry_policy=RetryPolicy(max_retries=2)))
    assert (was["retry_policy"]["max_retries"], now["retry_policy"]["max_retries"]) == (None, 2)


def test_a_job_of_another_type_is_stored_as_a_whole():
    was, now = changed_fields(job(), ScriptJob(name="a", schedule="@daily", payload=Script(argv=("true",))))
    assert (was["type"], was["payload"]["url"]) == ("http_request", "https://a.example")
    assert (now["type"], now["payload"]["argv"]) == ("script", ("true",))


def test_the_hash_of_a_value_does_not_depend_on_the_order_of_its_keys():
    first, second = {"a": LONG, "b": 1}, {"b": 1, "a": LONG}
    assert kept(job(body=first)) == kept(job(body=second))
    assert kept(job(body=first)) != kept(job(body=first | {"b": 2}))


def test_many_short_values_make_no_long_entry():
    tags = {f"{n:0255}": "v" * 255 for n in range(50)}
    fields: dict[str, Any] = {
        "name": "n" * 255, "description": "d" * 1000, "tags": tags, "key": "k" * 255, "schedule": "s" * 512,
        "timezone": "t" * 64, "after": ("a" * 255,) * 3, "start_at": "s" * 1000, "end_at": "e" * 1000,
        "body": "b" * 1000, "headers": {"h" * 500: "v"},
    }  # fmt: skip
    found = kept(job(**fields))
    assert len(msgspec.json.encode(found)) < LONGEST_ENTRY // 2
    assert found["timezone"] == "t" * 64


@pytest.mark.parametrize("field", ["before", "after"])
def test_a_long_definition_is_shortened_when_its_entry_is_written(field: str):
    noted = entry(LOCAL, 1, "job.create", "j", **{field: job(body=LONG)})
    written = msgspec.json.decode(noted.text, type=Entry)
    assert getattr(written, field) == kept(job(body=LONG))
    assert len(noted.text) < 500


def test_values_that_are_no_definition_are_stored_unchanged():
    ids = {"jobs": [f"{n:036}" for n in range(1000)]}
    assert msgspec.json.decode(entry(LOCAL, 1, "job.create", "", None, ids).text, type=Entry).after == ids
    short = entry(LOCAL, 1, "job.create", "j", None, job(body="short"))
    assert msgspec.json.decode(short.text, type=Entry).after["payload"]["body"] == "short"
