"""openapi-typescript generates types from /openapi.json that pass `tsc --strict`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.processes import Server
from generated.desk import DATABASE, KINDS, GeneratorDesk

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def desk(server: Server, node: Path, packages: Path) -> GeneratorDesk:
    desk = GeneratorDesk(server, node, "typescript")
    desk.lay_out(packages)
    for name in ("package.json", "jobs.ts"):
        desk.bring(HERE / name)
    return desk


@pytest.fixture(scope="module")
def said(desk: GeneratorDesk) -> str:
    """Returns the output of the generator, with warnings."""
    return desk.type(f"{{ {desk.generate.strip()}; }} 2>&1")


@pytest.fixture(scope="module")
def checked(desk: GeneratorDesk, said: str) -> GeneratorDesk:
    """Checks both programs, of the docs and of these tests, with `tsc --strict`."""
    check, _ = desk.try_out.splitlines()
    assert "--strict" in check
    desk.type(check.replace("first.ts", "first.ts jobs.ts"))
    return desk


def test_the_types_are_generated_without_a_warning(said: str) -> None:
    assert re.fullmatch(r"✨ openapi-typescript \S+\n🚀 \S+ → duetime\.ts \[\S+\]\n", said), said


def test_a_checked_program_creates_reads_and_cancels_a_job_of_each_kind(checked: GeneratorDesk) -> None:
    printed = checked.type(f"node jobs.ts {checked.url} '{DATABASE}' 2>&1")
    assert checked.cancelled_kinds(printed) == KINDS
    for summary in ("PUT https://example.com/hook", "echo hello", "SELECT ?", "reports.send"):
        assert f'"summary":"{summary}"' in printed


def test_the_program_in_the_docs_does_what_it_says(checked: GeneratorDesk) -> None:
    _, run = checked.try_out.splitlines()
    assert checked.type(run) == "ping CANCELLED\n"
