"""The client offers all that the server has, and both clients offer the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from duetime.client import AsyncClient, Client, operations
from duetime.client.batch import batch_call
from duetime.client.calls import Call, Followed, Listed

Route = tuple[str, str]  # its method, and its path

# Another operation does the same.
TWICE = {
    ("PUT", "/api/v1/jobs/{job_id}"),  # as PATCH
}
# What `duetime worker` speaks, through `sdk/remote.py`.
OF_WORKERS = {("POST", f"/api/v1/workers/{action}") for action in ("join", "poll", "report", "leave")}
# Families of routes that the client is to have, and has not yet: a path that begins so is no failure.
NOT_YET: tuple[str, ...] = ()


def _operations() -> dict[str, Any]:
    """Each with what it builds, from arguments made up by the names of its parameters."""
    found = {}
    for name, build in inspect.getmembers(operations, inspect.isfunction):
        if build.__module__ != operations.__name__ or name.startswith("_") or name == "request":
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
    missing = routes - {route for _, route in pairs} - TWICE - OF_WORKERS
    assert {route for route in missing if not any(route[1].startswith(family) for family in NOT_YET)} == set()
    assert sent - {call for call, _ in pairs} == set()  # none that the server has not


def _fits(call: Route, route: Route) -> bool:
    return call[0] == route[0] and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route[1]), call[1]) is not None


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_operation_is_a_method_of_both_clients(kind: type[Any]) -> None:
    for name, build in inspect.getmembers(operations, inspect.isfunction):
        if build.__module__ != operations.__name__ or name.startswith("_"):
            continue
        method = getattr(kind, name)
        assert method.__name__ == name
        assert method.__doc__ == build.__doc__
        own, *parameters = inspect.signature(method).parameters.values()
        assert (own.name, parameters) == ("self", list(inspect.signature(build).parameters.values()))


def test_both_clients_have_the_same_methods() -> None:
    one, other = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient))
    assert one == other
