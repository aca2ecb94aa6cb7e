"""Parts of the OpenAPI document that the framework can't derive from the handlers: bounds, headers and responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from duetime.api import queries
from duetime.api.routes.actions import MOST_COMING
from duetime.api.routes.jobs import STATUSES
from duetime.domain.job import JobType
from duetime.domain.states import ErrorType, State

REF = "#/components/schemas/{name}"

# A missing body counts as an empty object here: nothing to change, all dead letters, the default overlap.
OPTIONAL_BODIES = {
    ("/api/v1/jobs/{job_id}", "put"),
    ("/api/v1/jobs/{job_id}", "patch"),
    ("/api/v1/dead-letters/redrive", "post"),
    ("/api/v1/signing-key/rotate", "post"),
}
_IF_MATCH = {"If-Match": {"type": "string"}}
HEADERS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("/api/v1/jobs", "post"): {"Idempotency-Key": {"type": "string", "pattern": "^[!-~]{1,255}$"}},
    ("/api/v1/jobs/{job_id}", "put"): _IF_MATCH,
    ("/api/v1/jobs/{job_id}", "patch"): _IF_MATCH,
    ("/api/v1/jobs/by-key/{key}", "put"): _IF_MATCH,
    ("/api/v1/events", "get"): {"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
    ("/api/v1/executions/{execution_id}/logs", "get"): {"Last-Event-ID": {"type": "string"}},  # only a stream reads it
}
# Bounds that a handler checks itself, for better errors than the framework's.
BOUNDS: dict[str, dict[str, Any]] = {
    "limit": {"minimum": 1, "maximum": queries.MAX_LIMIT},
    "offset": {"minimum": 0, "maximum": queries.MAX_OFFSET},
    "count": {"minimum": 1, "maximum": MOST_COMING},
    "status": {"enum": STATUSES},
    "state": {"enum": [*State]},
    "type": {"enum": [*JobType]},
    "error_type": {"enum": [*ErrorType]},
    "http_status": {"pattern": "^[1-9]([0-9]{2}|[xX]{2})$"},
    "key": {"minLength": 1, "maxLength": 255},
    "job_id": {"format": "uuid"},
    "execution_id": {"format": "uuid"},
    "subscription_id": {"format": "uuid"},
}


def _answer(description: str, name: str, **headers: str) -> dict[str, Any]:
    return {
        "description": description,
        "headers": {
            header.replace("_", "-"): {"required": True, "description": text, "schema": {"type": "string"}}
            for header, text in headers.items()
        },
        "content": {"application/json": {"schema": {"$ref": REF.format(name=name)}}},
    }


_CREATED = _answer("The job was created.", "CreatedJob")
_JOB = _answer("The current job.", "JobView", ETag="its version, for If-Match")
# Responses that a handler encodes itself: their type is not in its signature.
ANSWERS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("/api/v1/jobs", "post"): {"201": _CREATED},
    ("/api/v1/jobs/{job_id}", "get"): {"200": _JOB},
    ("/api/v1/jobs/{job_id}", "put"): {"200": _JOB},
    ("/api/v1/jobs/{job_id}", "patch"): {"200": _JOB},
    ("/api/v1/jobs/by-key/{key}", "put"): {"200": _JOB, "201": _CREATED},
    ("/health", "get"): {
        "200": _answer("The node works: ok, or degraded.", "Health"),
        "503": _answer("The node should get no requests: degraded or unhealthy.", "Health"),
    },
    ("/health/ready", "get"): {
        "200": _answer("The node should get requests.", "Readiness"),
        "503": _answer("The node should get no requests.", "Readiness"),
    },
}

IDS = ("job_id", "execution_id", "subscription_id")  # UUIDs in responses, as in parameters of the same names
LEAVING_OUT = {"Assignment", "Health", "Polled", "Problem", "Reported"}  # responses that omit default values


def parameters(path: str, method: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the parameters that the framework found, with their bounds, and the headers that the handler reads."""
    bounded = [
        {**parameter, "schema": {**_sent(parameter["schema"]), **BOUNDS.get(parameter["name"], {})}}
        for parameter in found
    ]
    headers = HEADERS.get((path, method), {})
    return bounded + [
        {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in headers.items()
    ]


def _sent(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema without null, which the framework adds to optional parameters: a query can't hold it."""
    choices = [choice for choice in schema.get("oneOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def change_of(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a JSON Merge Patch: every field may be left out, and null removes a field that is optional.

    The patch of a named schema gets a name too, and is added to `schemas`: code generators make a class of it.
    """
    name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else ""
    whole = schemas[name] if name else schema
    if whole.get("type") != "object":
        return {field: item for field, item in schema.items() if field != "default"}
    if not name:
        return _change_of(whole, schemas)
    named = f"{name}Change"
    if named not in schemas:
        schemas[named] = {"title": named, **_change_of(whole, schemas)}
    return {"$ref": REF.format(name=named)}


def _change_of(whole: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    change: dict[str, Any] = {name: whole[name] for name in ("type", "propertyNames", "maxProperties") if name in whole}
    if "properties" not in whole:
        anything: dict[str, Any] = whole.get("additionalProperties", {})
        return {**change, "additionalProperties": _or_null(change_of(anything, schemas))} if anything else change
    fields = {name: change_of(item, schemas) for name, item in whole["properties"].items()}
    required = whole["required"]
    fields = {name: item if name in required else _or_null(item) for name, item in fields.items()}
    return {**change, "properties": fields, "additionalProperties": False}


_NULL = {"type": "null"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
    return {"anyOf": [*choices, _NULL] if _NULL not in choices else choices}


def complete(value: Any) -> None:
    """Adds what code generators need to all schemas of a document, in place: `items` for an array of anything, and the
    type `string` for property names and enums of text."""
    if isinstance(value, list):
        for item in value:
            complete(item)
    if not isinstance(value, dict):
        return
    if value.get("type") == "array" and not {"items", "prefixItems"} & value.keys():
        value["items"] = {}
    if isinstance(value.get("propertyNames"), dict):
        value["propertyNames"].setdefault("type", "string")
    words = value.get("enum")
    if isinstance(words, list) and "type" not in value and all(isinstance(word, str) for word in words):
        value["type"] = "string"
    for item in value.values():
        complete(item)


def complete_answers(document: dict[str, Any]) -> None:
    """Marks the fields that a response always has, and the formats of ids, in the schemas of responses. In place.

    Schemas that requests use too are left out. The defaults of views are for the code that creates them: removed.
    """
    schemas: dict[str, Any] = document["components"]["schemas"]
    operations = [operation for operations in document["paths"].values() for operation in operations.values()]
    sent, answered = (
        _named_in([operation.get(part) for operation in operations], schemas) for part in ("requestBody", "responses")
    )
    for name in answered - sent:
        fields = schemas[name].get("properties", {})
        for field in IDS:
            for choice in _strings_in(fields.get(field, {})):
                choice["format"] = "uuid"
        if fields and name not in LEAVING_OUT:
            schemas[name]["required"] = list(fields)
            for schema in fields.values():
                schema.pop("default", None)


def _named_in(value: Any, schemas: dict[str, Any]) -> set[str]:
    """Returns the names of the schemas that a value refers to, directly or through other schemas."""
    found: set[str] = set()
    left = [value]
    while left:
        match left.pop():
            case {"$ref": str(ref)} if (name := ref.rpartition("/")[2]) not in found:
                found.add(name)
                left.append(schemas[name])
            case dict() as item:
                left += item.values()
            case list() as items:
                left += items
    return found


def _strings_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the schemas of text in a field: the field itself, its alternatives, or its items."""
    for choice in schema.get("anyOf") or schema.get("oneOf") or [schema.get("items") or schema]:
        if choice.get("type") == "string":
            yield choice
