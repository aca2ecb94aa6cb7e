"""Both stores have the same modules, SQL files and reads, and a handler for each command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duetime.store
from duetime.domain import commands as c
from duetime.store.blocks import COMMANDS
from duetime.store.handlers import handlers
from duetime.store.postgres.blocks import load_blocks as load_postgres
from duetime.store.sqlite.blocks import load_blocks as load_sqlite

STORES = Path(duetime.store.__file__).parent
SQLITE, POSTGRES = STORES / "sqlite", STORES / "postgres"
BLOCK = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def names(folder: Path, pattern: str) -> set[str]:
    return {path.name for path in folder.glob(pattern)}


def test_both_have_the_same_modules_of_commands():
    assert names(SQLITE, "on_*.py") == names(POSTGRES, "on_*.py")


def test_both_have_the_same_sql_files():
    for folder in (SQLITE, POSTGRES):
        found = names(folder, "sql/*.sql") | names(STORES, "sql/*.sql")
        assert found - {"doctor.sql", "export.sql", "promotion.sql"} == {*COMMANDS, "reads.sql"}


def test_both_have_the_same_reads():
    assert load_sqlite("reads.sql").keys() == load_postgres("reads.sql").keys()


@pytest.mark.parametrize(("load", "folder"), [(load_sqlite, SQLITE), (load_postgres, POSTGRES)])
def test_no_block_replaces_one_of_another_file(load, folder: Path):  # type: ignore[no-untyped-def]
    def count(file_name: str) -> int:
        files = (STORES / "sql" / file_name, folder / "sql" / file_name)
        return sum(len(BLOCK.findall(file.read_text())) for file in files if file.exists())

    assert len(load(*COMMANDS)) == sum(map(count, COMMANDS))
    assert len(load("reads.sql")) == count("reads.sql")


def test_a_shared_block_has_no_types_on_sqlite():
    assert not [name for name, sql in (load_sqlite(*COMMANDS) | load_sqlite("reads.sql")).items() if "::" in sql]


class Jobs:
    def create_jobs(self, command: c.CreateJobs) -> str:
        return f"created at {command.now}"


def others() -> object:
    """An object with a method for each command except CreateJobs."""
    names = re.findall(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", " ".join(c.__all__))
    methods = {re.sub(r"\B([A-Z])", r"_\1", name).lower(): print for name in names if name != "CreateJobs"}
    return type("Others", (), methods)()


def test_a_command_is_applied_by_the_method_of_its_name():
    found = handlers(Jobs(), others())
    assert found[c.CreateJobs](c.CreateJobs(7, ())) == "created at 7"
    assert {kind.__name__ for kind in found} <= set(c.__all__)
    assert len(found) >= 40


def test_a_command_without_a_handler_or_with_two_is_refused():
    with pytest.raises(TypeError, match="0 classes have a method add_events for the command AddEvents"):
        handlers(Jobs())
    with pytest.raises(TypeError, match="2 classes have a method create_jobs"):
        handlers(Jobs(), type("MoreJobs", (Jobs,), {})(), others())
