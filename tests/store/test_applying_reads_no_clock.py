"""A command contains its time and random values: applying it reads no clock and no random source, on either store."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import duetime.store

STORES = Path(duetime.store.__file__).parent
CLOCKS = re.compile(
    r"\bnow\s*\(|current_(timestamp|time|date)|local(timestamp|time)\b|clock_timestamp|(statement|transaction)_timestamp"
    r"|timeofday|unixepoch|strftime|julianday|\b(date|time|datetime)\s*\(|\brandom|gen_random|uuidv7\s*\(|uuid_generate",
    re.IGNORECASE,
)
LOOKS_ONLY = {"doctor.sql"}  # only `duetime doctor` reads these values, and no command uses them
# Blocks on the outcome of commits, which a writer in doubt reads. They are not part of the ledger.
OF_COMMITS = {"prune_commits", "end_batch", "get_last_batch", "end_batch_of_people"}

FILES = sorted(path for path in STORES.glob("**/sql/*.sql") if path.name not in LOOKS_ONLY)
MODULES = sorted(path for kind in ("apply", "on_*") for path in STORES.glob(f"*/{kind}.py"))


def blocks(path: Path) -> dict[str, str]:
    _, *parts = re.split(r"^-- name: (\w+)$", path.read_text(), flags=re.MULTILINE)
    return {name: re.sub(r"--.*", "", sql) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_no_statement_reads_a_clock(path: Path):
    reading = {name for name, sql in blocks(path).items() if CLOCKS.search(sql)}
    assert reading <= OF_COMMITS
    assert all("commits" in blocks(path)[name] for name in reading)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parts[-2]}-{path.stem}")
def test_no_handler_imports_a_clock(path: Path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported.isdisjoint({"time", "datetime", "random", "secrets", "uuid", "os"})


def test_the_search_finds_the_allowed_reads_of_a_clock():
    assert len(FILES) >= 8
    assert len(MODULES) >= 15
    found = {name for path in FILES for name, sql in blocks(path).items() if CLOCKS.search(sql)}
    assert {"prune_commits", "end_batch"} <= found
