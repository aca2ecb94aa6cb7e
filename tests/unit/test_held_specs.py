"""Large definitions in the memory of a node: as text, and counted by their memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain.held_specs import PLACE_BYTES, LargeDefinition, hold, plain
from duetime.domain.job import HttpJob, JobSpec, PythonJob, ScriptJob, SqlJob
from duetime.domain.payloads import HttpRequest, PythonCall, Script, SqlQuery
from duetime.executors.headers import encode_body

NAMED: dict[str, Any] = {"name": "large", "schedule": "every 1m", "priority": 7, "tags": {"a": "b"}}
LISTS: list[Any] = [[]] * 5000
MARKED = {"token": "encrypted:1:k1:abc", "rest": LISTS}


def held(spec: JobSpec) -> tuple[JobSpec, int]:
    return hold(LargeDefinition(msgspec.Raw(msgspec.json.encode(spec))))


@pytest.mark.parametrize("body", [LISTS, {"a": LISTS, "ü": 1.5}, 'é\n"x"' * 3000, None, "", 7, False])
def test_a_webhooks_body_stays_text_and_is_sent_as_before(body: Any):
    spec = HttpJob(
        **NAMED, payload=HttpRequest("http://a.example", headers={"X": "y"}, body=body, expect_status=(201,))
    )
    found, _ = held(spec)
    assert isinstance(found, HttpJob)
    assert found.payload.body is None or isinstance(found.payload.body, msgspec.Raw)
    assert encode_body(found.payload.body) == encode_body(body)
    whole = msgspec.structs.replace(found.payload, body=plain(found.payload.body))
    assert msgspec.structs.replace(found, payload=whole) == spec


def test_a_functions_arguments_stay_text():
    spec = PythonJob(**NAMED, payload=PythonCall("f", LISTS, {"a": LISTS}))
    found, _ = held(spec)
    assert isinstance(found, PythonJob)
    assert isinstance(found.payload.args, msgspec.Raw)
    assert (plain(found.payload.args), plain(found.payload.kwargs)) == (LISTS, {"a": LISTS})
    assert msgspec.json.encode(found) == msgspec.json.encode(spec)


@pytest.mark.parametrize(
    "spec",
    [
        HttpJob(**NAMED, payload=HttpRequest("http://a.example", body=MARKED, secret=("/body/token",))),
        PythonJob(**NAMED, payload=PythonCall("f", kwargs=MARKED, secret=("/kwargs/token",))),
        SqlJob(**NAMED, payload=SqlQuery("db", "SELECT $1", [LISTS])),
        ScriptJob(**NAMED, payload=Script(script="#" * 9000)),
    ],
)
def test_definitions_with_secrets_and_other_types_are_held_unchanged(spec: JobSpec):
    assert held(spec)[0] == spec


def test_a_decoded_definition_counts_with_its_memory():
    text = msgspec.json.encode(LISTS)
    as_text = HttpJob(**NAMED, payload=HttpRequest("http://a.example", body=LISTS))
    decoded = SqlJob(**NAMED, payload=SqlQuery("db", "SELECT $1", [LISTS]))
    assert held(as_text)[1] in range(2 * len(text) // PLACE_BYTES, 3 * len(text) // PLACE_BYTES)
    assert held(decoded)[1] > 5000 * 64 // PLACE_BYTES, "an empty list is 56 bytes, and the reference to it 8"


def test_a_definition_of_a_newer_version_can_not_be_held():
    with pytest.raises(msgspec.ValidationError):
        hold(LargeDefinition(msgspec.Raw(b'{"type":"http_request","name":"a","schedule":"x","payload":{"url":1}}')))
