"""Hundreds of requests generated from /openapi.json, good and bad: the document declares each response.

First the edge cases of each operation, then all operations in any order, over the same jobs and executions. Each run
sends the same requests as the last one, except for the ids. `make soak` sends thousands.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, BaseSchema, Case, GenerationMode

from api.asker import CONFIG, HEADERS, Asker, World
from api.person import Person
from cluster.processes import Receiver, Server
from store.postgres_server import fresh_database

pytestmark = pytest.mark.slow


class Extent(NamedTuple):
    """The number of requests."""

    edges_of: int  # of the edge cases, one in this many
    examples: int  # in addition to the edge cases
    least: int  # requests in all
    kept_for: int = 0  # the edge cases of another operation use the same things, until this many requests were sent


# Most requests are refused without a call to the store: PostgreSQL gets fewer.
SHORT = {"sqlite": Extent(6, 100, 500, kept_for=25), "postgresql": Extent(24, 50, 150, kept_for=25)}
LONG = {"sqlite": Extent(2, 400, 1000), "postgresql": Extent(8, 200, 400)}
MOST_EDGES, SAMPLED = 150, 20  # of an operation all of the first, and then one in this many
MOST_TRIES = 1000  # until an operation has succeeded once
RENEWED_EVERY = 100  # requests
GOOD, BAD = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
SETTINGS = settings(
    derandomize=True, database=None, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


# Thousands of keys are created here, for as many users; and there is a signing key, and a database to name.
NODE_SETTINGS = {
    "ALLOW_SQL": "true",
    "TENANT_KEYS_LIMIT": "1000000",
    "TENANT_CONNECTIONS_LIMIT": "1000000",
    "TENANT_USERS_LIMIT": "1000000",
    "SIGNING_SECRETS": f"whsec_{b64encode(bytes(32)).decode()}",
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    if request.param == "sqlite":
        server = Server(tmp_path, **NODE_SETTINGS).start()
        yield server
        server.close()
        return
    async with fresh_database() as url:
        keys = f"k1:{b64encode(bytes(32)).decode()}"
        server = Server(tmp_path, DATABASE_URL=url, ENCRYPTION_KEYS=keys, **NODE_SETTINGS).start()
        yield server
        server.close()


def test_every_response_is_declared_in_the_document(
    server: Server, receiver: Receiver, request: pytest.FixtureRequest
) -> None:
    check(server, receiver, SHORT[request.node.callspec.params["server"]])


@pytest.mark.soak
def test_thousands_of_responses_are_declared_in_the_document(
    server: Server, receiver: Receiver, request: pytest.FixtureRequest
) -> None:
    check(server, receiver, LONG[request.node.callspec.params["server"]])


def check(server: Server, receiver: Receiver, extent: Extent) -> None:
    url = f"http://127.0.0.1:{server.client.port}"
    config = schemathesis.Config.from_dict(CONFIG)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config, headers=HEADERS)
    operations = [found.ok() for found in schema.get_all_operations()]
    world = World(Person(server.client, receiver))
    asker = Asker(url, world)
    ask_edge_cases(asker, world, schema, operations, extent)
    ask_in_any_order(asker, world, operations, extent.examples)
    ask_for_what_is_missing(asker, world, operations)
    assert not asker.failures, "\n\n".join(asker.failures.values())
    assert "a request failed" not in server.errors()
    assert asker.answers.total() >= extent.least
    assert {operation.label for operation in operations} <= granted(asker)


def ask_edge_cases(
    asker: Asker, world: World, schema: BaseSchema, operations: Sequence[APIOperation], extent: Extent
) -> None:
    """Sends the edge cases of each parameter and field: its limits, values beyond them, another type, no value."""
    generation = schema.config.generation
    renewed_at: int | None = None
    for operation in operations:
        if renewed_at is None or asker.answers.total() - renewed_at >= extent.kept_for:
            world.renew()
            renewed_at = asker.answers.total()
        cases = schema.iter_coverage_cases(operation, generation_modes=[GOOD, BAD], generation_config=generation)
        for number, case in enumerate(cases):
            is_asked = number < MOST_EDGES or number % SAMPLED == 0  # a job has thousands, of four types
            if is_asked and number % extent.edges_of == 0:
                asker.ask(case)


def granted(asker: Asker) -> set[str]:
    """The operations that succeeded at least once."""
    return {label for label, status in asker.answers if status < 300}


def ask_for_what_is_missing(asker: Asker, world: World, operations: Sequence[APIOperation]) -> None:
    """Repeats the operations that have not succeeded yet: which ones succeed by chance changes with the document."""
    for operation in operations:
        ask_until_granted(asker, world, operation)


class GrantedError(Exception):
    """Ends the tries. Without it, all remaining requests are generated and not sent."""


def ask_until_granted(asker: Asker, world: World, operation: APIOperation) -> None:
    @settings(SETTINGS, max_examples=MOST_TRIES)
    @given(operation.as_strategy(GOOD))
    def ask(case: Case) -> None:
        if operation.label not in granted(asker):
            world.renew()
            asker.ask(case)
        if operation.label in granted(asker):  # also when Hypothesis repeats an example that raised
            raise GrantedError

    if operation.label not in granted(asker):
        with suppress(GrantedError):
            ask()


def ask_in_any_order(asker: Asker, world: World, operations: Sequence[APIOperation], count: int) -> None:
    cases = st.one_of([operation.as_strategy(mode) for operation in operations for mode in (GOOD, GOOD, BAD)])

    @settings(SETTINGS, max_examples=count)
    @given(cases)
    def ask(case: Case) -> None:
        if asker.answers.total() % RENEWED_EVERY == 0:
            world.renew()
        asker.ask(case)

    ask()
