"""openapi-python-client generates a working client from /openapi.json."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.processes import Server
from generated.desk import DATABASE, KINDS, GeneratorDesk

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def desk(server: Server, generators: Path) -> GeneratorDesk:
    return GeneratorDesk(server, generators, "python")


@pytest.fixture(scope="module")
def said(desk: GeneratorDesk) -> str:
    """Returns the output of the generator, with warnings."""
    return desk.type(f"{{ {desk.generate.strip()}; }} 2>&1")


def test_the_client_is_generated_without_a_warning(said: str) -> None:
    assert re.fullmatch(r"Generating \S+\n", said), said


def test_the_client_has_a_function_for_every_operation(desk: GeneratorDesk, said: str) -> None:
    operations: dict[str, set[str]] = {}
    for path in desk.server.client.get("/openapi.json").json()["paths"].values():
        for operation in path.values():
            folder = operation["tags"][0].replace(" ", "_")
            operations.setdefault(folder, {"__init__"}).add(operation["operationId"])
    assert {folder: desk.files_in(f"duetime_client/api/{folder}") for folder in operations} == operations


def test_a_program_creates_reads_and_cancels_a_job_of_each_kind(desk: GeneratorDesk, said: str) -> None:
    desk.bring(HERE / "jobs.py")
    assert desk.cancelled_kinds(desk.type(f"python jobs.py {desk.url} '{DATABASE}'")) == KINDS


def test_the_program_in_the_docs_does_what_it_says(desk: GeneratorDesk, said: str) -> None:
    assert desk.type(desk.try_out) == "ping CANCELLED\n"
