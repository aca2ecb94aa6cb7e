"""A tenant's admin registers SQLite files: files of others, files anywhere, huge files, endless statements."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from cluster.processes import Server, wait_until
from executors.script.watching import exists, on_linux
from security.hostile_sql import Admin, children_of, node

pytestmark = [pytest.mark.slow, on_linux]

# One step of SQLite's virtual machine, which takes longer than any timeout.
ONE_LONG_STEP = "instr(zeroblob(16000000), zeroblob(8000000) || x'01')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A node for one test, not started yet."""
    server = node(tmp_path / "node")
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Server]:
    """A tenant may have SQLite files of 4 MB."""
    server = node(tmp_path_factory.mktemp("shared") / "node")
    yield server.start(SQL_SQLITE_FOLDER=str(folder), SQL_SQLITE_FILE_LIMIT="4MB")
    server.close()


@pytest.fixture
def evil() -> str:
    """A new tenant, whose folder does not exist yet."""
    return f"evil-{secrets.token_hex(4)}"


@pytest.fixture
def eve(shared: Server, evil: str) -> Admin:
    return Admin(shared, evil)


def victim(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE secret (word TEXT); INSERT INTO secret VALUES ('hush')")
    return path


def is_intact(path: Path) -> bool:
    with closing(apsw.Connection(str(path))) as connection:
        return list(connection.execute("SELECT word FROM secret")) == [("hush",)]


def refused(ended: dict[str, Any] | None) -> bool:
    return ended is None or (ended["state"] == "FAILED" and "hush" not in str(ended))


def test_no_file_is_opened_or_created_without_a_folder(server: Server, tmp_path: Path) -> None:
    server.start()
    eve, other = Admin(server, "evil"), victim(tmp_path / "other.db")
    assert refused(eve.run(f"sqlite://{other}", "SELECT word FROM secret"))
    eve.run(f"sqlite://{tmp_path / 'made.db'}?mode=rwc", "CREATE TABLE t (n)")
    eve.run("sqlite:///made.db?mode=rwc", "CREATE TABLE t (n)")
    assert not list(tmp_path.rglob("made.db"))
    answer = eve.put("/connections/x", {"url": "sqlite:///made.db?mode=rwc"})
    assert (answer.status, "SQL_SQLITE_FOLDER" in answer.body.decode()) == (400, True)


@pytest.mark.parametrize("path", ["{other}", "../other/it.db", "..%2Fother%2Fit.db", "other/it.db", ".%2e/other/it.db"])
def test_no_path_leads_out_of_the_tenants_folder(eve: Admin, folder: Path, path: str) -> None:
    other = folder / "other" / "it.db"
    if not other.exists():
        victim(other)
    statements = {"": "SELECT word FROM secret", "?mode=rwc": "DELETE FROM secret"}
    jobs = [eve.begin(f"sqlite:///{path.format(other=other)}{mode}", error) for mode, error in statements.items()]
    assert all(job_id is None or refused(eve.ended(job_id)) for job_id in jobs)
    assert is_intact(other)


def test_each_tenant_has_its_own_files(eve: Admin, shared: Server) -> None:
    ann = Admin(shared, "acme")
    for admin in (eve, ann):
        ended = admin.run("sqlite:///same.db?mode=rwc", "CREATE TABLE t (n)")
        assert ended is not None
        assert ended["state"] == "COMPLETED", ended


def test_no_link_leads_out_of_the_tenants_folder(eve: Admin, evil: str, folder: Path, tmp_path: Path) -> None:
    other = victim(tmp_path / "elsewhere" / "it.db")
    (folder / evil).mkdir()
    (folder / evil / "link.db").symlink_to(other)
    (folder / evil / "new.db").symlink_to(tmp_path / "made.db")
    os.link(other, folder / evil / "hard.db")
    names = ("link.db", "hard.db", "new.db")
    urls = [f"sqlite:///{name}?mode={mode}" for name in names for mode in ("ro", "rw", "rwc")]
    jobs = [eve.begin(url, "SELECT word FROM secret") for url in urls]
    for url, job_id in zip(urls, jobs, strict=True):
        assert job_id is None or refused(eve.ended(job_id)), url
    assert not (tmp_path / "made.db").exists()
    victim(folder / evil / "own.db")
    (folder / evil / "own.db-journal").symlink_to(tmp_path / "made.db")
    eve.run("sqlite:///own.db", "DELETE FROM secret")
    assert not (tmp_path / "made.db").exists()


def test_a_tenants_folder_that_is_a_link_is_not_entered(eve: Admin, evil: str, folder: Path, tmp_path: Path) -> None:
    other = victim(tmp_path / "elsewhere" / "it.db")
    (folder / evil).symlink_to(other.parent)
    assert refused(eve.run("sqlite:///it.db", "SELECT word FROM secret"))
    assert refused(eve.run("sqlite:///made.db?mode=rwc", "CREATE TABLE t (n)"))
    assert os.listdir(other.parent) == ["it.db"]


def test_files_are_bounded_in_size_and_number(eve: Admin, evil: str, folder: Path) -> None:
    made = eve.run("sqlite:///big.db?mode=rwc", "CREATE TABLE t (b)")
    assert made is not None
    assert made["state"] == "COMPLETED", made
    fill = "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 60) SELECT {} FROM r"
    ended = eve.run("sqlite:///big.db", fill.format("randomblob(1000000)"))
    assert ended is not None
    assert "SQLITE_FULL" in ended["error_message"], ended
    assert sum(file.stat().st_size for file in (folder / evil).iterdir()) <= 4 * 1024 * 1024
    for number in range(40):
        (folder / evil / f"{number}.db").touch()
    ended = eve.run("sqlite:///more.db?mode=rwc", "CREATE TABLE t (n)")
    assert ended is not None
    assert "may have" in ended["error_message"], ended
    assert not (folder / evil / "more.db").exists()


def test_an_endless_statement_ends_at_its_timeout(eve: Admin, evil: str, shared: Server, folder: Path) -> None:
    """Its process has ended with its attempt: the file is not locked, and nothing was written."""
    made = eve.run("sqlite:///it.db?mode=rwc", "CREATE TABLE t (n)")
    assert made is not None
    assert made["state"] == "COMPLETED", made
    ended = eve.run("sqlite:///it.db", f"INSERT INTO t SELECT {ONE_LONG_STEP}", timeout_seconds=2)
    assert ended is not None
    assert (ended["state"], ended["error_type"]) == ("TIMEOUT", "timeout"), ended
    with closing(apsw.Connection(str(folder / evil / "it.db"))) as look:
        look.execute("BEGIN IMMEDIATE")
        assert list(look.execute("SELECT count(*) FROM t")) == [(0,)]
        look.execute("ROLLBACK")
    assert shared.process is not None
    (fork_server,) = children_of(shared.process.pid)
    assert children_of(fork_server) == [], "neither a process nor a zombie is left"
    ended = eve.run("sqlite:///it.db", "SELECT 1")
    assert ended is not None
    assert ended["state"] == "COMPLETED"


def test_a_statement_ends_with_its_node(server: Server, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    server.start(SQL_SQLITE_FOLDER=str(files))
    job_id = Admin(server, "evil").begin("sqlite:///it.db?mode=rwc", f"SELECT {ONE_LONG_STEP}", timeout_seconds=600)
    assert job_id is not None
    assert server.process is not None
    node_pid = server.process.pid
    (fork_server,) = wait_until(lambda: children_of(node_pid), 20, "the fork server is there")
    (statement,) = wait_until(lambda: children_of(fork_server), 20, "the statement has a process")
    server.kill()
    wait_until(lambda: not exists(statement) and not exists(fork_server), 20, "both are gone")


def test_a_statement_that_needs_too_much_memory_gets_an_error(eve: Admin) -> None:
    columns = ", ".join(["randomblob(15000000)"] * 30)
    ended = eve.run("sqlite:///it.db?mode=rwc", f"SELECT {columns}")
    assert ended is not None
    assert ended["error_type"] == "sql_error", ended
    assert "memory" in ended["error_message"], ended
