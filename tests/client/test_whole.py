"""The client has all operations of the server, and both clients have the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from duetime.client import (
    AsyncClient,
    Client,
    admin_operations,
    alert_operations,
    observability_operations,
    operations,
)
from duetime.client.batch import batch_call
from duetime.client.calls import Call, Followed, Listed
from duetime.client.models import CreatedJob

Route = tuple[str, str]  # its method and its path

# Another operation does the same.
TWICE = {
    ("PUT", "/api/v1/jobs/{job_id}"),  # as PATCH
}
# Operations of `duetime worker`, through `sdk/remote.py`.
OF_WORKERS = {("POST", f"/api/v1/workers/{action}") for action in ("join", "poll", "report", "leave")}
# For orchestrators: that a client gets a response at all says as much.
PROBES = {("GET", "/health/live")}
# Families of routes that the client will have later: a path that begins with one of these is no failure.
NOT_YET: tuple[str, ...] = ()


def _functions() -> list[tuple[str, Any]]:
    return [
        (name, build)
        for module in (operations, alert_operations, admin_operations, observability_operations)
        for name, build in inspect.getmembers(module, inspect.isfunction)
        if build.__module__ == module.__name__ and not name.startswith("_")
    ]


def _operations() -> dict[str, Any]:
    """Yields each operation with its call, built from arguments by the names of its parameters."""
    found = {}
    for name, build in _functions():
        if name == "request":
            continue
        required = [
            parameter.name
            for parameter in inspect.signature(build).parameters.values()
            if parameter.default is inspect.Parameter.empty
        ]
        found[name] = build(*({} if name in ("job", "changes") else name for name in required))
    return found


def _sent() -> Iterator[Route]:
    for built in [*_operations().values(), batch_call(b"")]:
        if isinstance(built, Call):
            yield built.method, built.path.partition("?")[0]
        else:
            assert isinstance(built, (Listed, Followed))
            yield "GET", built.path


def test_every_route_of_the_server_has_an_operation(client: Any) -> None:
    document = client.request("GET", "/openapi.json")
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    sent = set(_sent())
    pairs = {(call, route) for call in sent for route in routes if _fits(call, route)}
    missing = routes - {route for _, route in pairs} - TWICE - OF_WORKERS - PROBES
    assert {route for route in missing if not any(route[1].startswith(family) for family in NOT_YET)} == set()
    assert sent - {call for call, _ in pairs} == set()  # no operation that the server does not have


def _fits(call: Route, route: Route) -> bool:
    return call[0] == route[0] and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route[1]), call[1]) is not None


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_operation_is_a_method_of_both_clients(kind: type[Any]) -> None:
    for name, build in _functions():
        method = getattr(kind, name)
        assert method.__name__ == name
        assert method.__doc__ == build.__doc__
        own, *parameters = inspect.signature(method).parameters.values()
        assert (own.name, parameters) == ("self", list(inspect.signature(build).parameters.values()))


def test_both_clients_have_the_same_methods() -> None:
    one, other = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient))
    assert one == other


# Fields that a struct of the client has in addition to the response, and fields with another shape.
OWN = {
    "CreatedJob": {"version"},  # put_job_by_key returns a new job, or the existing one
    "AuditList": {"offset", "total"},  # as every page of the client
}
SHAPED = {"payload"}  # a dict, for every type of job


def test_the_client_has_every_field_of_the_responses(client: Any) -> None:
    """And no other fields. Each schema is compared with the struct that reads it, with all nested ones."""
    document = client.request("GET", "/openapi.json")
    compared = set[str]()
    for built in [*_operations().values(), batch_call(b"")]:
        if isinstance(built, Followed):
            continue
        call = built.page(1) if isinstance(built, Listed) else built
        for schema in _answers(document, call.method, call.path.partition("?")[0]):
            _compare(document, schema, call.answer, compared)
    assert {"CreatedJob", "HttpJobView", "PythonJobView", "ExecutionView", "Webhooks", "KeyView"} <= compared


def _answers(document: dict[str, Any], method: str, path: str) -> Iterator[dict[str, Any]]:
    for route, item in document["paths"].items():
        if method.lower() in item and _fits((method, path), (method, route)):
            for status, answer in item[method.lower()]["responses"].items():
                if status.startswith("2") and "application/json" in answer.get("content", {}):
                    yield answer["content"]["application/json"]["schema"]


def _compare(document: dict[str, Any], schema: dict[str, Any], kind: Any, compared: set[str]) -> None:
    structs = list(_structs(kind))
    for name, found in _objects(document, schema, ""):
        for struct in structs:
            if struct is CreatedJob and name.endswith("JobView"):
                continue  # of an existing job as well as of a new one
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
            assert set(found["properties"]) <= set(fields), (name, struct)
            assert set(fields) - set(found["properties"]) <= OWN.get(name, set()), (name, struct)
            if name not in compared:
                compared.add(name)
                for field in set(found["properties"]) - SHAPED:
                    _compare(document, found["properties"][field], fields[field], compared)


def _objects(document: dict[str, Any], schema: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the objects with named fields in a schema: itself, its choices, its items."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _objects(document, document["components"]["schemas"][name], name)
    elif "properties" in schema:
        yield name, schema
    else:
        inner = [schema["items"]] if "items" in schema else []
        for choice in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *inner]:
            yield from _objects(document, choice, name)


def _structs(kind: Any) -> Iterator[Any]:
    """Yields the structs in a type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)
