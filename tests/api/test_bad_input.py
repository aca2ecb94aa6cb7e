"""Bad input gets a 4xx that names the field and says what to do. It never gets a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.person import FAR, Person, refused
from cluster.processes import Client

HUGE = 10**400


def raw(person: Person, **fields: str) -> bytes:
    """A good body in which some fields are written by hand, as no encoder writes them."""
    parts = {name: json.dumps(value) for name, value in person.body().items()} | fields
    return ("{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in parts.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )


class TestFields:
    @pytest.mark.parametrize(
        ("wrong", "nearest"),
        [("shedule", "schedule"), ("time_zone", "timezone"), ("retry", "retry_policy"), ("prioritie", "priority")],
    )
    def test_the_error_for_an_unknown_field_has_the_nearest_name(
        self, person: Person, wrong: str, nearest: str
    ) -> None:
        message = refused(person.client.post("/jobs", person.body(**{wrong: 1})), 400, "INVALID_REQUEST", f"/{wrong}")
        assert nearest in message

    def test_the_error_for_an_unknown_inner_field_has_its_pointer(self, person: Person) -> None:
        body = person.body(retry_policy={"max_retry": 1})
        message = refused(person.client.post("/jobs", body), 400, "INVALID_REQUEST", "/retry_policy/max_retry")
        assert "did you mean 'max_retries'?" in message

    @pytest.mark.parametrize("missing", ["name", "schedule", "payload"])
    def test_the_error_for_a_missing_field_names_it(self, person: Person, missing: str) -> None:
        body = person.body()
        del body[missing]
        refused(person.client.post("/jobs", body), 400, "INVALID_REQUEST", f"/{missing}")

    @pytest.mark.parametrize(
        ("pointer", "value"),
        [
            *((f"/{name}", 1) for name in ("name", "schedule", "payload", "timezone", "key", "overlap", "tags")),
            *((f"/{name}", "x") for name in ("priority", "timeout_seconds", "max_runs", "retry_policy", "catch_up")),
            *((f"/{name}", None) for name in ("name", "schedule", "payload", "priority", "timezone")),
            *((f"/{name}", []) for name in ("name", "payload", "tags", "dst", "start_at")),
            ("/name", ""), ("/name", "x" * 256), ("/key", ""), ("/key", "x" * 256), ("/description", "x" * 2001),
            ("/timezone", ""), ("/timezone", "x" * 65), ("/schedule", ""), ("/schedule", "x" * 513),
            ("/priority", -1), ("/priority", 10), ("/priority", 1.5), ("/priority", True), ("/priority", HUGE),
            ("/timeout_seconds", 0), ("/timeout_seconds", -1), ("/timeout_seconds", 3601), ("/timeout_seconds", HUGE),
            ("/max_runs", 0), ("/max_runs", -HUGE), ("/max_runs", 10**9 + 1), ("/jitter_seconds", -0.1),
            ("/jitter_seconds", 86_401), ("/overlap", "never"), ("/type", "shell"),
            ("/tags", {str(number): "" for number in range(51)}), ("/slo", {}), ("/slo", []), ("/expect_every", 25),
            *(("/expect_every", text) for text in ("", "25", "h", "-1h", "1.5h", "0s", "401d", "1y", "9" * 17)),
        ],
    )  # fmt: skip
    def test_the_error_for_an_invalid_field_names_it(self, person: Person, pointer: str, value: Any) -> None:
        answer = person.client.post("/jobs", person.body(**{pointer[1:]: value}))
        refused(answer, 400, "INVALID_REQUEST", pointer)

    @pytest.mark.parametrize(
        ("inside", "pointer"),
        [
            ({"retry_policy": {"max_retries": -1}}, "/retry_policy/max_retries"),
            ({"retry_policy": {"max_retries": 101}}, "/retry_policy/max_retries"),
            ({"retry_policy": {"backoff": "random"}}, "/retry_policy/backoff"),
            ({"retry_policy": {"backoff_factor": 0.5}}, "/retry_policy/backoff_factor"),
            ({"retry_policy": {"delays": [1, "2"]}}, "/retry_policy/delays/1"),
            ({"retry_policy": {"delays": [0] * 101}}, "/retry_policy/delays"),
            ({"catch_up": {"policy": "some"}}, "/catch_up/policy"),
            ({"catch_up": {"window_seconds": 10**12}}, "/catch_up/window_seconds"),
            ({"catch_up": {"max_runs": 0}}, "/catch_up/max_runs"),
            ({"dst": {"gap": "both"}}, "/dst/gap"),
            ({"slo": {"lateness_seconds": 0}}, "/slo/lateness_seconds"),
            ({"slo": {"lateness_seconds": 86_401}}, "/slo/lateness_seconds"),
            ({"slo": {"success": 100}}, "/slo/success"),
            ({"slo": {"success": 49.9}}, "/slo/success"),
            ({"slo": {"lateness_seconds": 5, "on_time": 100}}, "/slo/on_time"),
            ({"slo": {"success": 99, "window": "31d"}}, "/slo/window"),
            ({"slo": {"success": 99, "window": "59m"}}, "/slo/window"),
            ({"slo": {"success": 99, "window": "a month"}}, "/slo/window"),
            ({"slo": {"window": "30d"}}, "/slo"),
        ],
    )
    def test_the_error_for_an_invalid_inner_field_has_its_pointer(
        self, person: Person, inside: dict[str, Any], pointer: str
    ) -> None:
        refused(person.client.post("/jobs", person.body(**inside)), 400, "INVALID_REQUEST", pointer)

    @pytest.mark.parametrize(
        ("payload", "pointer"),
        [
            ({}, "/payload/url"),
            ({"url": ""}, "/payload/url"),
            ({"url": "ftp://example.org/"}, "/payload/url"),
            ({"url": "http://"}, "/payload/url"),
            ({"url": "http://user:pass@example.org/"}, "/payload/url"),
            ({"url": "http://exa mple.org/"}, "/payload/url"),
            ({"url": "http://example.org/\r\nX: 1"}, "/payload/url"),
            ({"url": "http://example.org/" + "x" * 2048}, "/payload/url"),
            ({"method": "BREW"}, "/payload/method"),
            ({"headers": {"Host": "x"}}, "/payload/headers/Host"),
            ({"headers": {"webhook-id": "x"}}, "/payload/headers/webhook-id"),
            ({"headers": {"X-A": "b\r\nX-C: d"}}, "/payload/headers/X-A"),
            ({"headers": {"a/b~": "x"}}, "/payload/headers/a~1b~0"),
            ({"headers": {"X-A": "********"}}, "/payload/headers/X-A"),
            ({"headers": {f"X-{number}": "" for number in range(51)}}, "/payload/headers"),
            ({"expect_status": [99]}, "/payload/expect_status/0"),
            ({"expect_status": [200] * 51}, "/payload/expect_status"),
        ],
    )
    def test_a_request_that_can_not_be_sent_is_refused(
        self, person: Person, payload: dict[str, Any], pointer: str
    ) -> None:
        whole = payload if pointer == "/payload/url" else {"url": person.receiver.url(), **payload}
        refused(person.client.post("/jobs", person.body(payload=whole)), 400, "INVALID_REQUEST", pointer)

    def test_all_problems_of_a_request_are_in_one_response(self, person: Person) -> None:
        payload = {"url": "ftp://x", "headers": {"Host": "x", "TE": "x"}}
        problem = person.client.post("/jobs", person.body(payload=payload)).json()
        assert [field["pointer"] for field in problem["errors"]] == [
            "/payload/url", "/payload/headers/Host", "/payload/headers/TE"
        ]  # fmt: skip

    def test_the_error_for_an_unknown_field_lists_the_known_ones_with_the_type(self, person: Person) -> None:
        for field, says in (("typ", "did you mean 'type'?"), ("zzz", "timezone, type, webhooks")):
            said = refused(person.client.post("/jobs", person.body(**{field: 1})), 400, "INVALID_REQUEST", f"/{field}")
            assert says in said
            job_id = person.create()
            said = refused(person.client.patch(f"/jobs/{job_id}", {field: 1}), 400, "INVALID_REQUEST", f"/{field}")
            assert says in said

    def test_the_error_for_an_unknown_field_of_an_objective_names_the_known_ones(self, person: Person) -> None:
        said = refused(
            person.client.post("/jobs", person.body(slo={"sucess": 99})), 400, "INVALID_REQUEST", "/slo/sucess"
        )
        assert "did you mean 'success'?" in said
        said = refused(person.client.post("/jobs", person.body(slo={"zzz": 99})), 400, "INVALID_REQUEST", "/slo/zzz")
        assert "lateness_seconds, on_time, success, window" in said
        job_id = person.create()
        refused(
            person.client.patch(f"/jobs/{job_id}", {"slo": {"sucess": None}}), 400, "INVALID_REQUEST", "/slo/sucess"
        )

    def test_a_type_that_is_off_is_refused_with_the_setting_that_turns_it_on(self, person: Person) -> None:
        answer = person.client.post("/jobs", person.body(type="script", payload={"argv": ["true"]}))
        assert "ALLOW_SCRIPTS=true" in refused(answer, 400, "INVALID_REQUEST", "/type")

    @pytest.mark.parametrize(
        ("type_", "payload", "pointer"),
        [
            ("script", {}, "/payload"),
            ("script", {"argv": ["a"], "script": "b"}, "/payload"),
            ("script", {"argv": [""]}, "/payload/argv/0"),
            ("script", {"argv": ["a"], "interpreter": "sh"}, "/payload/interpreter"),
            ("script", {"argv": ["a"], "cwd": "here"}, "/payload/cwd"),
            ("script", {"argv": ["a"], "env": {"1A": "x"}}, "/payload/env/1A"),
            ("script", {"argv": ["a"], "env": {"DUETIME_ATTEMPT": "x"}}, "/payload/env/DUETIME_ATTEMPT"),
            ("script", {"argv": ["a"], "env": {"A": "********"}}, "/payload/env/A"),
            ("script", {"argv": ["a"], "env": {"A": "x" * 8193}}, "/payload/env/A"),
            ("script", {"url": "http://example.org/"}, "/payload/url"),
            ("sql_query", {"connection": "a"}, "/payload/statement"),
            ("sql_query", {"statement": "SELECT 1"}, "/payload/connection"),
            ("sql_query", {"connection": "", "statement": "SELECT 1"}, "/payload/connection"),
            ("sql_query", {"connection": "a", "statement": "x" * 65_537}, "/payload/statement"),
            ("python", {}, "/payload/function"),
            ("python", {"function": "a", "kwargs": {"not a name": 1}}, "/payload/kwargs/not a name"),
            ("python", {"function": "a", "args": {}}, "/payload/args"),
        ],
    )
    def test_an_invalid_payload_is_refused(
        self, person: Person, type_: str, payload: dict[str, Any], pointer: str, scripting: Client
    ) -> None:
        answer = scripting.post("/jobs", person.body(type=type_, payload=payload))
        refused(answer, 400, "INVALID_REQUEST", pointer)


class TestSchedules:
    @pytest.mark.parametrize(
        "schedule",
        [
            "* * 30 2 *", "0 0 31 4 *", "0 0 30 2 MON#6", "* * * * * * *", "* * * *", "60 * * * *", "* 24 * * *",
            "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "a b c d e", "@sometimes", "@",
            "every", "every 0s", "every 500ms", "every -5m", "every 5 parsecs", "every 99999999999999999999m",
            "every 4000d", "tomorrow", "2026-02-30T00:00:00Z", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59",
            "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2001-01-01T00:00:00Z", "2099-01-01", "   ",
            "\u0660 * * * *", "² * * * *", "* * * * *;", "H H H H H H H", "1,2,3,,4 * * * *", "-" * 500, "9" * 500,
        ],
    )  # fmt: skip
    def test_a_schedule_that_never_fires_or_is_invalid_is_refused(self, person: Person, schedule: str) -> None:
        refused(person.client.post("/jobs", person.body(schedule)), 400, "INVALID_SCHEDULE", "/schedule")

    @pytest.mark.parametrize(
        "zone", ["Mars/Olympus", "UTC+25", "../../etc/passwd", "/etc/localtime", "Europe", " ", "é"]
    )
    @pytest.mark.parametrize("schedule", ["0 9 * * *", "every 1h", "immediate", "2099-01-01T00:00"])
    def test_a_zone_that_does_not_exist_is_refused(self, person: Person, schedule: str, zone: str) -> None:
        answer = person.client.post("/jobs", person.body(schedule, timezone=zone))
        refused(answer, 400, "INVALID_SCHEDULE", "/timezone")

    def test_the_error_for_an_unknown_zone_has_the_nearest_name(self, person: Person) -> None:
        answer = person.client.post("/jobs", person.body("0 9 * * *", timezone="Europe/Berlinn"))
        assert "Europe/Berlin" in refused(answer, 400, "INVALID_SCHEDULE", "/timezone")

    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"start_at": "x"}, "/start_at"),
            ({"end_at": "9999-01-01T00:00:00Z"}, "/end_at"),
            ({"end_at": "2001-01-01T00:00:00Z"}, "/end_at"),
            ({"start_at": "2098-01-01T00:00:00Z", "end_at": "2097-01-01T00:00:00Z"}, "/end_at"),
            ({"start_at": "8999-12-31T23:59:59Z"}, "/schedule"),
        ],
    )
    def test_bounds_that_leave_no_instant_are_refused(
        self, person: Person, fields: dict[str, str], pointer: str
    ) -> None:
        refused(person.client.post("/jobs", person.body("every 1h", **fields)), 400, "INVALID_SCHEDULE", pointer)

    @pytest.mark.parametrize(
        "schedule", ["8999-12-31T23:59:59Z", "0 0 29 2 *", "0 0 29 2 MON", "* * * * * *", "@yearly"]
    )
    def test_the_latest_and_the_rarest_schedules_are_accepted(self, person: Person, schedule: str) -> None:
        job_id = person.create(schedule, start_at="2098-01-01T00:00:00Z")
        assert person.client.get(f"/jobs/{job_id}/next?count=20").status == 200


class TestBodies:
    @pytest.mark.parametrize(
        "content",
        [
            b"", b" ", b"x", b"null", b"1", b'"x"', b"[]", b"true", b"{", b"}", b"{}x", b"{'a': 1}", b'{"a": 1,}',
            b"{}{}", b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"\x00", b"\xff", b"<xml/>", b"a=b&c=d",
            b'{"name": NaN}', b'{"name": Infinity}', b'{"name": -Infinity}', b'{"name": 01}', b'{"name": 1e999}',
            b'{"name": "\x01"}', b'{"name": "\xed\xa0\x80"}', b'{"name": "\\ud800"}', b'{"name": "\\x"}',
            b"{" * 100_000, b"[" * 1_000_000, b'{"payload":' * 50_000,
        ],
    )  # fmt: skip
    @pytest.mark.parametrize(
        ("method", "path"),
        [("POST", "/jobs"), ("PUT", "/jobs/by-key/bad"), ("POST", "/schedules/preview"), ("POST", "/jobs/")],
    )
    def test_a_body_that_is_not_a_job_is_refused(self, client: Client, method: str, path: str, content: bytes) -> None:
        answer = client.request(method, path, content)
        refused(answer, 400, "INVALID_REQUEST")

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/jobs"), ("POST", "/jobs/"), ("PUT", "/jobs/by-key/large"), ("PATCH", "/jobs/{id}"),
            ("POST", "/schedules/preview"), ("POST", "/dead-letters/redrive"),
        ],
    )  # fmt: skip
    def test_a_body_of_ten_megabytes_is_refused(self, person: Person, method: str, path: str) -> None:
        content = json.dumps(person.body(description="x" * 10_000_000)).encode()
        answer = person.client.request(method, path.replace("{id}", person.create()), content)
        refused(answer, 413, "PAYLOAD_TOO_LARGE")
        assert person.client.get("/health").status == 200

    @pytest.mark.parametrize("field", ["name", "description", "key", "schedule", "timezone"])
    def test_the_error_for_a_nul_has_its_pointer(self, person: Person, field: str) -> None:
        body = raw(person, **{field: '"a\\u0000b"'})
        refused(person.client.post("/jobs", body), 400, "INVALID_REQUEST", f"/{field}")
        refused(person.client.post("/jobs", raw(person, **{field: '"a\x00b"'})), 400, "INVALID_REQUEST")

    def test_the_error_for_a_deeply_nested_nul_has_its_pointer(self, person: Person) -> None:
        payload = {"url": person.receiver.url(), "body": {"rows": ["ok", "a\0b"]}}
        answer = person.client.post("/jobs", person.body(payload=payload))
        refused(answer, 400, "INVALID_REQUEST", "/payload/body/rows/1")

    def test_an_escaped_backslash_before_u0000_is_not_a_nul(self, person: Person) -> None:
        job_id = person.create(description="a\\u0000b")
        assert person.job(job_id)["description"] == "a\\u0000b"

    @pytest.mark.parametrize("url", ["ftp://example.com/", "http://user:pass@example.com/", "nowhere"])
    def test_webhooks_with_an_invalid_url_are_refused(self, person: Person, url: str) -> None:
        answer = person.client.post("/jobs", person.body(webhooks={"on_failure": url}))
        refused(answer, 400, "INVALID_REQUEST", "/webhooks/on_failure")

    def test_a_nul_in_a_large_body_is_refused_too(self, person: Person) -> None:
        payload = f'{{"url": "{person.receiver.url()}", "body": "{"x" * 100_000}\\u0000"}}'
        refused(person.client.post("/jobs", raw(person, payload=payload)), 400, "INVALID_REQUEST", "")

    @pytest.mark.parametrize("depth", [31, 33, 200, 20_000])
    def test_deep_nesting_is_refused(self, person: Person, depth: int) -> None:
        nested = "[" * depth + "]" * depth
        payload = f'{{"url": "{person.receiver.url()}", "body": {nested}}}'
        answer = person.client.post("/jobs", raw(person, payload=payload))
        assert "32 levels" in refused(answer, 400, "INVALID_REQUEST")

    def test_nesting_within_the_limit_is_accepted_and_stored(self, person: Person) -> None:
        nested: Any = "deep"
        for _ in range(29):
            nested = [nested]
        job_id = person.create(payload={"url": person.receiver.url(), "body": nested})
        assert person.job(job_id)["payload"]["body"] == nested
        assert person.client.patch(f"/jobs/{job_id}", {"priority": 1}).status == 200

    def test_brackets_in_text_are_not_nesting(self, person: Person) -> None:
        assert person.create(description="[" * 2000)

    def test_the_last_of_two_fields_with_the_same_name_counts(self, person: Person) -> None:
        content = raw(person)[:-1] + b', "priority": 1, "priority": 2}'
        answer = person.client.post("/jobs", content)
        if answer.status == 201:
            assert person.job(answer.json()["job_id"])["priority"] == 2
        else:
            refused(answer, 400, "INVALID_REQUEST")

    @pytest.mark.parametrize(
        "number", ["1" * 30, "-" + "9" * 300, "1.5e300", "0.1", "-0", "1e-400", str(2**63), str(2**64)]
    )
    def test_numbers_in_a_body_are_kept_or_refused(self, person: Person, number: str) -> None:
        payload = f'{{"url": "{person.receiver.url()}", "body": [{number}]}}'
        answer = person.client.post("/jobs", raw(person, payload=payload))
        if answer.status != 201:
            refused(answer, 400, "INVALID_REQUEST")
            return
        job_id = answer.json()["job_id"]
        assert person.job(job_id)["payload"]["body"] == [json.loads(number)]
        assert person.client.get(f"/jobs?name={person.name.replace(' ', '%20')}").json()["total"] == 1
        assert person.client.patch(f"/jobs/{job_id}", {"priority": 1}).status == 200

    @pytest.mark.parametrize("text", ["\u2028\u2029", "💥" * 60, "\ufffe\uffff", "\u202e", "' OR 1=1 --", "\x7f\x9f"])
    def test_odd_text_is_kept_as_it_is(self, person: Person, text: str) -> None:
        job_id = person.create(name=text, description=text, tags={"t": text})
        job = person.job(job_id)
        assert (job["name"], job["description"], job["tags"]) == (text, text, {"t": text})

    def test_odd_bodies_reach_the_target_and_end(self, person: Person) -> None:
        for body in ("x" * 100_000, {"": None}, [], 0, False, "\u2028", 10**30):
            job_id = person.create("immediate", payload={"url": person.receiver.url(), "body": body})
            assert [row["state"] for row in person.wait_for_end(job_id)] == ["COMPLETED"]


def test_no_bad_input_reached_the_log_as_a_defect(server: Any, person: Person) -> None:
    """Runs last in this file: no bad input caused a 500 or a logged defect."""
    person.create(FAR)
    assert "a request failed" not in server.errors()
    assert "a turn failed" not in server.errors()
