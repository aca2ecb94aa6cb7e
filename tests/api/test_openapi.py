"""The OpenAPI document and its page, health, preview, and the checks of local requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.person import Person, refused
from cluster.processes import Client

# Code generators name functions after these ids: another id breaks programs that generate their client again.
OPERATIONS = {
    "/api/v1/jobs": {"get": "list_jobs", "post": "create_job"},
    "/api/v1/jobs:batch": {"post": "create_jobs"},
    "/api/v1/signing-key": {"get": "get_signing_key"},
    "/api/v1/signing-key/rotate": {"post": "rotate_signing_key"},
    "/api/v1/jobs/{job_id}": {"get": "get_job", "put": "put_job", "patch": "change_job", "delete": "delete_job"},
    "/api/v1/jobs/by-key/{key}": {"put": "put_job_by_key"},
    **{
        f"/api/v1/jobs/{{job_id}}/{action}": {"post": f"{action}_job"}
        for action in ("pause", "resume", "cancel", "run", "retry")
    },
    "/api/v1/jobs/{job_id}/status": {"get": "get_job_status"},
    "/api/v1/jobs/{job_id}/executions": {"get": "list_job_executions"},
    "/api/v1/jobs/{job_id}/next": {"get": "list_job_next"},
    "/api/v1/jobs/{job_id}/why": {"get": "get_job_why"},
    "/api/v1/executions": {"get": "list_executions"},
    "/api/v1/executions/{execution_id}": {"get": "get_execution"},
    "/api/v1/executions/{execution_id}/logs": {"get": "get_execution_logs"},
    "/api/v1/executions/{execution_id}/cancel": {"post": "cancel_execution"},
    "/api/v1/executions/{execution_id}/retry": {"post": "retry_execution"},
    "/api/v1/dead-letters": {"get": "list_dead_letters"},
    "/api/v1/dead-letters/redrive": {"post": "redrive_dead_letters"},
    "/api/v1/schedules/preview": {"post": "preview_schedule"},
    "/api/v1/events": {"get": "follow_events"},
    "/api/v1/cluster": {"get": "get_cluster"},
    "/api/v1/observability/now": {"get": "get_now"},
    "/api/v1/audit": {"get": "list_audit"},
    "/api/v1/circuits": {"get": "list_circuits"},
    "/api/v1/circuits/{circuit}": {"delete": "close_circuit"},
    "/api/v1/subscriptions": {"get": "list_subscriptions", "post": "add_subscription"},
    "/api/v1/subscriptions/{subscription_id}": {"delete": "remove_subscription"},
    "/api/v1/connections": {"get": "list_connections"},
    "/api/v1/connections/{name}": {"put": "put_connection", "delete": "remove_connection"},
    "/api/v1/alert-channels": {"get": "list_alert_channels"},
    "/api/v1/alert-channels/{name}": {"put": "put_alert_channel", "delete": "remove_alert_channel"},
    "/api/v1/alert-channels/{name}/test": {"post": "test_alert_channel"},
    "/api/v1/alerts": {"get": "list_alerts"},
    "/api/v1/alerts/history": {"get": "list_alert_history"},
    "/api/v1/alert-rules": {"get": "list_alert_rules"},
    "/api/v1/alert-rules/{name}": {
        "get": "get_alert_rule",
        "put": "put_alert_rule",
        "delete": "remove_alert_rule",
    },
    "/api/v1/alert-rules/{name}/test": {"post": "test_alert_rule"},
    "/api/v1/silences": {"get": "list_silences", "post": "add_silence"},
    "/api/v1/silences/{silence_id}": {"delete": "remove_silence"},
    "/api/v1/workers": {"get": "list_workers"},
    **{f"/api/v1/workers/{action}": {"post": f"worker_{action}"} for action in ("join", "poll", "report", "leave")},
    "/api/v1/api-keys": {"get": "list_api_keys", "post": "create_api_key"},
    "/api/v1/api-keys/{key_id}": {"delete": "revoke_api_key"},
    "/api/v1/stats": {"get": "get_stats"},
    "/api/v1/observability/metrics": {"get": "get_metrics"},
    "/api/v1/observability/histograms": {"get": "get_histograms"},
    "/api/v1/jobs/{job_id}/histograms": {"get": "get_job_histograms"},
    "/health": {"get": "get_health"},
    "/health/live": {"get": "get_liveness"},
    "/health/ready": {"get": "get_readiness"},
}


@pytest.fixture(scope="module")
def document(server: Any) -> dict[str, Any]:
    answer = server.client.get("/openapi.json")
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "$ref":
                yield item
            else:
                yield from refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


def schemas_in(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema, and its place: named ones, and those of parameters, bodies, responses and headers."""
    for name, schema in document["components"]["schemas"].items():
        yield from inside(schema, name)
    yield from below(document["paths"], "")


def below(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from (inside if name == "schema" else below)(item, f"{where} {name}")
    elif isinstance(value, list):
        for item in value:
            yield from below(item, where)


def inside(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    yield where, schema
    for name in ("items", "additionalProperties", "propertyNames"):
        yield from inside(schema.get(name), f"{where}/{name}")
    for union in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, choice in enumerate(schema.get(union, ())):
            yield from inside(choice, f"{where}/{union}/{number}")
    for name, item in schema.get("properties", {}).items():
        yield from inside(item, f"{where}/{name}")


def named_in(value: Any, schemas: dict[str, Any], found: set[str]) -> set[str]:
    """The named schemas that a part of the document refers to, added to those that were `found`."""
    for name in {ref.rpartition("/")[2] for ref in refs(value)} - found:
        found.add(name)
        named_in(schemas[name], schemas, found)
    return found


def answers_only(document: dict[str, Any]) -> set[str]:
    """The schemas that are used only in responses."""
    schemas = document["components"]["schemas"]
    operations = [each for operations in document["paths"].values() for each in operations.values()]
    sent = named_in([each.get("requestBody", {}) for each in operations], schemas, set())
    return named_in([each["responses"] for each in operations], schemas, set()) - sent


class TestOpenApi:
    def test_is_3_1_and_names_every_route_and_operation(self, document: dict[str, Any]) -> None:
        assert document["openapi"].startswith("3.1.")
        assert document["info"].keys() >= {"title", "version"}
        found = {
            path: {method: operation["operationId"] for method, operation in operations.items()}
            for path, operations in document["paths"].items()
        }
        assert found == OPERATIONS

    def test_every_reference_resolves(self, document: dict[str, Any]) -> None:
        found = set(refs(document))
        assert found
        for ref in found:
            at: Any = document
            for part in ref.removeprefix("#/").split("/"):
                assert part in at, ref
                at = at[part]

    def test_every_operation_is_complete(self, document: dict[str, Any]) -> None:
        seen: set[str] = set()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                where = f"{method} {path}"
                assert operation["summary"], where
                assert operation["operationId"] not in seen, where
                seen.add(operation["operationId"])
                content = operation["responses"]["default"]["content"]
                assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
                named = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
                assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, where
                for item in operation.get("parameters", []):
                    assert item["in"] in ("path", "query", "header"), where
                    assert "schema" in item, where
                if method in ("post", "put", "patch") and "requestBody" in operation:
                    assert operation["requestBody"]["content"], where

    def test_every_schema_is_complete_enough_for_a_code_generator(self, document: dict[str, Any]) -> None:
        """A generator that can't read a part of a schema drops that part, and everything that contains it."""
        found = list(schemas_in(document))
        assert len(found) > 500
        for where, schema in found:
            if schema.get("type") == "array":
                assert {"items", "prefixItems"} & schema.keys(), where
            if "enum" in schema or "properties" in schema:
                assert "type" in schema, where
            for union in ("anyOf", "oneOf"):
                choices = schema.get(union, [])
                assert not any(set(choice) == {union} for choice in choices), f"{where}: a union in a union"
                assert len({repr(choice) for choice in choices}) == len(choices), f"{where}: a choice twice"
            if known := {"type", "$ref", "anyOf", "oneOf", "allOf", "const"} & schema.keys():
                assert known
            else:  # anything at all
                assert schema.keys() <= {"title", "description", "default"}, where

    def test_every_named_schema_has_a_unique_name(self, document: dict[str, Any]) -> None:
        """Generators create a file for each: two names must not be equal, or differ in case only."""
        schemas = document["components"]["schemas"]
        titles = [schema.get("title", name).lower() for name, schema in schemas.items()]
        assert sorted(titles) == sorted(set(titles))
        assert len({name.lower() for name in schemas}) == len(schemas)
        assert all(name.isidentifier() for name in schemas)

    def test_every_body_has_a_media_type_that_code_generators_support(self, document: dict[str, Any]) -> None:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if "requestBody" in operation:
                    assert list(operation["requestBody"]["content"]) == ["application/json"], f"{method} {path}"
        assert "application/x-ndjson" in document["paths"]["/api/v1/jobs:batch"]["post"]["description"]

    def test_fields_that_are_always_in_a_response_are_required(self, document: dict[str, Any]) -> None:
        """Otherwise generated code has to check each field for None."""
        schemas = document["components"]["schemas"]
        optional = {
            name
            for name in answers_only(document)
            if set(schemas[name].get("properties", ())) - set(schemas[name].get("required", ()))
        }
        assert optional == {"Assignment", "Health", "Polled", "Problem", "Reported"}, "those that leave out defaults"

    def test_ids_and_instants_in_responses_have_their_formats(self, document: dict[str, Any]) -> None:
        """Ids in responses have the same format as in parameters, because requests use them."""
        schemas = document["components"]["schemas"]
        found = set()
        for name in answers_only(document):
            for field, schema in schemas[name].get("properties", {}).items():
                choices = schema.get("anyOf") or schema.get("oneOf") or [schema]
                found |= {(field, choice.get("format")) for choice in choices if choice.get("type") == "string"}
        for field in ("job_id", "execution_id", "subscription_id"):
            assert (field, "uuid") in found
            assert (field, None) not in found
        for field in ("created_at", "updated_at", "next_run_time", "last_run_time", "scheduled_at", "end_time"):
            assert (field, "date-time") in found
            assert (field, None) not in found
        assert schemas["Coming"]["properties"]["next"]["items"]["format"] == "date-time"

    def test_the_body_of_a_job_is_described(self, document: dict[str, Any]) -> None:
        schemas = document["components"]["schemas"]
        kinds = [choice["$ref"].rpartition("/")[2] for choice in schemas["JobSpec"]["anyOf"]]
        assert kinds == ["HttpJob", "ScriptJob", "SqlJob", "PythonJob"]
        for kind in kinds:
            spec = schemas[kind]
            # A job without a type is a request.
            assert set(spec["required"]) - {"type"} == {"name", "schedule", "payload"}
            assert ("type" in spec["required"]) == (kind != "HttpJob")
            assert spec["additionalProperties"] is False
            assert {"timezone", "retry_policy", "catch_up", "overlap", "dst", "tags"} <= spec["properties"].keys()

    @pytest.mark.parametrize("payload", ["HttpRequest", "Script", "SqlQuery", "PythonCall"])
    def test_a_payload_has_the_same_fields_in_requests_and_responses(
        self, document: dict[str, Any], payload: str
    ) -> None:
        """Fields that the server sets for itself are in neither."""
        schemas = document["components"]["schemas"]
        fields = schemas[f"{payload}View"]["properties"].keys()
        assert schemas[payload]["properties"].keys() == schemas[f"{payload}Change"]["properties"].keys() == fields

    def test_a_change_of_a_job_may_name_any_field_and_reset_what_has_a_default(self, document: dict[str, Any]) -> None:
        schemas = document["components"]["schemas"]
        for ref, kind in zip(schemas["JobChange"]["anyOf"], schemas["JobSpec"]["anyOf"], strict=True):
            change = schemas[ref["$ref"].rpartition("/")[2]]
            assert set(change["properties"]) == set(schemas[kind["$ref"].rpartition("/")[2]]["properties"])
            assert "required" not in change
            assert "anyOf" not in change["properties"]["name"]
            assert {"type": "null"} in change["properties"]["priority"]["anyOf"]
        assert schemas["HttpJobChange"]["properties"]["payload"]["$ref"].endswith("/HttpRequestChange")
        assert schemas["HttpRequestChange"]["properties"]["url"]["type"] == "string"

    @pytest.mark.parametrize(
        ("path", "method", "status", "name"),
        [
            ("/api/v1/jobs", "post", "201", "CreatedJob"),
            ("/api/v1/jobs/{job_id}", "get", "200", "JobView"), ("/api/v1/jobs/{job_id}", "patch", "200", "JobView"),
            ("/api/v1/jobs/by-key/{key}", "put", "200", "JobView"),
            ("/api/v1/jobs/by-key/{key}", "put", "201", "CreatedJob"),
            ("/health", "get", "200", "Health"), ("/health", "get", "503", "Health"),
            ("/health/ready", "get", "200", "Readiness"), ("/health/ready", "get", "503", "Readiness"),
        ],
    )  # fmt: skip
    def test_responses_that_handlers_encode_have_their_type(
        self, document: dict[str, Any], path: str, method: str, status: str, name: str
    ) -> None:
        answer = document["paths"][path][method]["responses"][status]
        assert answer["content"] == {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}

    def test_every_response_except_streams_has_a_type(self, document: dict[str, Any]) -> None:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for answer in operation["responses"].values():
                    for kind, content in answer.get("content", {}).items():  # a 204 has none
                        assert content["schema"] or kind == "text/event-stream", f"{method} {path}"

    def test_responses_of_the_server_have_the_documented_fields(self, document: dict[str, Any], person: Person) -> None:
        schemas = document["components"]["schemas"]
        schema = schemas[schemas["JobView"]["anyOf"][0]["$ref"].rpartition("/")[2]]
        job = person.client.get(f"/jobs?name={person.name.replace(' ', '%20')}&limit=1").json()
        assert job["total"] == 0
        person.create()
        (job,) = person.client.get(f"/jobs?name={person.name.replace(' ', '%20')}").json()["jobs"]
        assert set(job) == set(schema["properties"])

    def test_the_page_lists_every_route_and_loads_nothing(self, client: Client) -> None:
        answer = client.get("/docs")
        assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/html")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        for path in OPERATIONS:
            assert path.encode() in answer.body
        assert b"<script" not in answer.body


class TestHealth:
    def test_is_ok_without_details(self, client: Client) -> None:
        answer = client.get("/health")
        assert (answer.status, answer.json()) == (200, {"status": "ok"})

    def test_verbose_names_each_part(self, client: Client) -> None:
        health = client.get("/health?verbose=true").json()
        assert set(health["components"]) >= {"database", "timer", "claimer", "recorder", "reconciler", "retention"}
        assert set(health["components"].values()) == {"healthy"}
        memory, jobs = health["memory"], health["jobs"]
        assert memory["limit_bytes"] > memory["available_bytes"] + memory["current_bytes"] - 1
        assert 0 <= memory["utilization_percent"] < 90
        assert memory["resident_bytes"] > 1_000_000
        assert jobs["current_count"] >= 0
        assert (jobs["limit"], jobs["available"]) == (None, None)

    def test_a_bad_flag_is_refused(self, client: Client) -> None:
        refused(client.get("/health?verbose=perhaps"), 400, "INVALID_REQUEST", "/verbose")


class TestPreview:
    def preview(self, client: Client, **wanted: Any) -> dict[str, Any]:
        answer = client.post("/schedules/preview", {"after": "2026-03-01T00:00:00Z", **wanted})
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    def test_has_a_description_and_the_next_instants(self, client: Client) -> None:
        seen = self.preview(client, schedule="0 9 * * MON-FRI", timezone="Europe/Berlin", count=2)
        assert "09:00" in seen["description"]
        assert seen["next"] == ["2026-03-02T08:00:00.000Z", "2026-03-03T08:00:00.000Z"]

    def test_warns_of_daylight_saving_changes(self, client: Client) -> None:
        seen = self.preview(client, schedule="30 2 * * *", timezone="Europe/Berlin")
        assert any("2026-03-29" in warning and "gap: shift" in warning for warning in seen["warnings"])
        assert self.preview(client, schedule="30 2 * * *")["warnings"] == []

    def test_an_instant_that_has_passed_is_a_warning(self, client: Client) -> None:
        seen = self.preview(client, schedule="2026-01-01T00:00:00Z")
        assert (seen["next"], "has passed" in seen["warnings"][0]) == ([], True)

    def test_every_and_immediate(self, client: Client) -> None:
        assert self.preview(client, schedule="every 90s", count=1)["next"] == ["2026-03-01T00:01:30.000Z"]
        assert self.preview(client, schedule="immediate")["description"] == "once, now"

    @pytest.mark.parametrize(
        ("wanted", "error", "pointer"),
        [
            ({"schedule": "* * 30 2 *"}, "INVALID_SCHEDULE", "/schedule"),
            ({"schedule": "x"}, "INVALID_SCHEDULE", "/schedule"),
            ({"schedule": "@daily", "timezone": "Mars"}, "INVALID_SCHEDULE", "/timezone"),
            ({"schedule": "@daily", "count": 0}, "INVALID_REQUEST", "/count"),
            ({"schedule": "@daily", "count": 101}, "INVALID_REQUEST", "/count"),
            ({"schedule": "@daily", "after": "tomorrow"}, "INVALID_REQUEST", "/after"),
            ({"schedule": "@daily", "dst": {"gap": "jump"}}, "INVALID_REQUEST", "/dst/gap"),
            ({"shedule": "@daily"}, "INVALID_REQUEST", "/shedule"),
            ({}, "INVALID_REQUEST", "/schedule"),
        ],
    )
    def test_the_error_for_a_bad_request_names_the_field(
        self, client: Client, wanted: dict[str, Any], error: str, pointer: str
    ) -> None:
        refused(client.post("/schedules/preview", wanted), 400, error, pointer)

    def test_the_last_years_of_the_calendar_work(self, client: Client) -> None:
        for schedule in ("@yearly", "every 3650d", "0 0 29 2 *"):
            self.preview(client, schedule=schedule, after="8999-12-31T23:59:59.999Z", count=100)


class TestWhoMayAsk:
    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "",
            "localhost.",
            "[::2]",
            "128.0.0.1",
            "127.1",
            "::1",
            "[127.0.0.1",
            "0x7f.0.0.1",
            "\xff",
            "a" * 900,
        ],
    )
    def test_another_host_is_refused(self, client: Client, host: str) -> None:
        for path in ("/health", "/jobs", "/docs"):
            refused(client.get(path, host=host), 403, "FORBIDDEN")
        refused(client.post("/jobs", {}, host=host), 403, "FORBIDDEN")

    @pytest.mark.parametrize(
        "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "127.0.0.2:80", "127.9.9.9", "[::1]", "[::1]:8080"]
    )
    def test_a_local_host_is_accepted(self, client: Client, host: str) -> None:
        assert client.get("/health", host=host).status == 200

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://[", "https://[::1", "\xff", "x" * 900]
    )
    def test_a_page_of_another_server_is_refused(self, client: Client, origin: str) -> None:
        refused(client.post("/jobs", {}, origin=origin), 403, "FORBIDDEN")
        refused(client.get("/jobs", origin=origin), 403, "FORBIDDEN")

    def test_a_page_of_this_server_is_accepted(self, client: Client) -> None:
        assert client.get("/health", origin=f"http://127.0.0.1:{client.port}").status == 200


class TestNothingThere:
    @pytest.mark.parametrize("path", ["/nothing", "/jobs/x/y/z", "/api-keys/x/y", "/%00", "/jobs:nothing"])
    def test_is_a_problem_like_any_other(self, client: Client, path: str) -> None:
        refused(client.get(path), 404, "NOT_FOUND")

    @pytest.mark.parametrize(("method", "path"), [("PATCH", "/jobs"), ("POST", "/events"), ("DELETE", "/executions")])
    def test_a_method_that_is_not_allowed_is_refused(self, client: Client, method: str, path: str) -> None:
        refused(client.request(method, path), 405, "METHOD_NOT_ALLOWED")

    def test_the_response_lists_the_allowed_methods(self, client: Client) -> None:
        allowed = client.request("PATCH", "/jobs").headers["allow"]
        assert set(allowed.split(", ")) >= {"GET", "POST"}
