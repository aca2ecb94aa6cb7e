"""`duetime audit`: the list, the verification and the export."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from node_forks import fork_server
from served import served
from store.postgres_server import connected, fresh_database


def duetime(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return fork_server.run(["duetime", *arguments], folder, os.environ)


def say(*arguments: str, folder: Path) -> Any:
    done = duetime(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A running node with three changes."""
    folder = tmp_path_factory.mktemp("audit")
    with served(folder) as url:
        for name in ("one", "two"):
            job = ("--name", name, "--schedule", "@yearly", "--url", "http://127.0.0.1:9/")
            made = duetime("--url", url, "job", "create", *job, folder=folder)
            assert made.returncode == 0, made.stderr
        assert duetime("--url", url, "job", "pause", "two", folder=folder).returncode == 0
        yield url, folder


def test_the_audit_is_listed_latest_first(node: tuple[str, Path]) -> None:
    url, folder = node
    entries = say("--url", url, "audit", "list", folder=folder)["entries"]
    assert [entry["action"] for entry in entries] == ["job.pause", "job.create", "job.create"]
    assert {entry["actor"] for entry in entries} == {"local"}
    assert (entries[0]["before"]["status"], entries[0]["after"]["status"]) == ("PENDING", "PAUSED")
    assert len(say("--url", url, "audit", "list", "--action", "job.create", "-n", "1", folder=folder)["entries"]) == 1
    table = duetime("--url", url, "audit", "list", "--resource", entries[0]["resource"], folder=folder)
    assert table.returncode == 0
    assert "job.pause" in table.stdout


def test_a_whole_audit_is_verified_next_to_a_running_node(node: tuple[str, Path]) -> None:
    _, folder = node
    done = duetime("audit", "verify", "--data", "data", "--save", "heads.json", folder=folder)
    assert (done.returncode, done.stdout) == (0, "The audit is whole: 3 entries in 1 chain.\n")
    again = say("audit", "verify", "--data", "data", "--against", "heads.json", folder=folder)
    assert (again["whole"], again["entries"]) == (True, 3)


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        ("UPDATE audit SET entry = replace(entry, 'local', 'eve') WHERE number = 1 << 20", "link 1: its entries"),
        ("DELETE FROM audit WHERE number = 2 << 20", "link 2: its entries"),
        ("DELETE FROM audit WHERE number = 3 << 20; DELETE FROM audit_links WHERE link = 3", "link 3: it is gone"),
    ],
)
def test_an_altered_audit_is_detected(tmp_path: Path, node: tuple[str, Path], harm: str, found: str) -> None:
    _, folder = node
    (tmp_path / "data").mkdir()
    with apsw.Connection(str(folder / "data" / "duetime.db")) as source:
        copy = apsw.Connection(str(tmp_path / "data" / "duetime.db"))
        with copy.backup("main", source, "main") as backup:
            backup.step()
    assert duetime("audit", "verify", "--data", "data", "--save", "heads.json", folder=tmp_path).returncode == 0
    copy.execute(harm).fetchall()
    copy.close()
    done = duetime("audit", "verify", "--data", "data", "--against", "heads.json", folder=tmp_path)
    assert done.returncode == 1
    assert "the audit was altered" in done.stderr
    assert found in done.stderr


def test_a_file_that_does_not_hold_heads_is_refused(node: tuple[str, Path]) -> None:
    _, folder = node
    (folder / "other.json").write_text("[]")
    assert duetime("audit", "verify", "--data", "data", "--against", "other.json", folder=folder).returncode == 2
    assert duetime("audit", "verify", "--data", "nowhere", folder=folder).returncode == 1


async def test_the_chains_of_several_nodes_on_postgresql(tmp_path: Path) -> None:
    async with fresh_database() as url:
        with served(tmp_path / "one", url) as first, served(tmp_path / "two", url) as second:
            for number in range(6):
                job = ("--name", f"job {number}", "--schedule", "@yearly", "--url", "http://127.0.0.1:9/")
                made = duetime("--url", (first, second)[number % 2], "job", "create", *job, folder=tmp_path)
                assert made.returncode == 0, made.stderr
        found = say("audit", "verify", "--database-url", url, folder=tmp_path)
        assert (found["whole"], found["entries"]) == (True, 6)
        async with connected(url) as connection:
            await connection.execute("UPDATE audit SET resource = 'x' WHERE number = (SELECT max(number) FROM audit)")
        done = duetime("audit", "verify", "--database-url", url, folder=tmp_path)
        assert done.returncode == 1
        assert "but it is kept under 'x'" in done.stderr


def test_an_export_verifies_without_the_database_and_the_database_against_it(node: tuple[str, Path]) -> None:
    _, folder = node
    exported = say("audit", "export", "audit.jsonl", "--data", "data", folder=folder)
    assert exported["entries"] == 3
    verified = say("audit", "verify", "--file", "audit.jsonl", "--save", "exported.json", folder=folder)
    assert (verified["whole"], verified["entries"]) == (True, exported["entries"])
    fits = duetime("audit", "verify", "--data", "data", "--against", "exported.json", folder=folder)
    assert fits.returncode == 0, fits.stderr
    again = duetime("audit", "export", "audit.jsonl", "--data", "data", folder=folder)
    assert (again.returncode, "exists already" in again.stderr) == (1, True)
    text = (folder / "audit.jsonl").read_text()
    (folder / "audit.jsonl").write_text(text.replace("@yearly", "@weekly", 1))
    harmed = duetime("audit", "verify", "--file", "audit.jsonl", folder=folder)
    assert harmed.returncode == 1
    assert "the export was altered. In audit.jsonl, line " in harmed.stderr
    both = duetime("audit", "verify", "--file", "audit.jsonl", "--data", "data", folder=folder)
    assert both.returncode == 2
    nothing = duetime("audit", "verify", "--file", "data", folder=folder)
    assert (nothing.returncode, "holds no exports" in nothing.stderr) == (1, True)
