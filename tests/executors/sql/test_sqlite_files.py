"""SQLite opens only files in the tenant's folder, even if a link replaces a file meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import BadFolder, OwnDatabase
from duetime.executors.sql.problems import Failed
from duetime.executors.sql.sqlite_files import MOST_FILES, check_opened, enter_folder, find_file, open_files
from executors.sql.conftest import Connections


@pytest.fixture
def inner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The folder of the tenant `default`, entered until the end of the test."""
    monkeypatch.chdir(folder)
    return enter_folder(str(folder), "default", make=True)


@pytest.mark.parametrize("tenant", ["", ".", "..", "a/b", "A", "../a", "-", "x" * 64, "a\0"])
def test_a_tenant_whose_name_can_not_be_a_folder_has_no_files(folder: Path, tenant: str):
    with pytest.raises(Failed):
        enter_folder(str(folder), tenant, make=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("replace", ["symlink", "hard link", "other file"])
def test_a_file_that_is_replaced_after_the_check_is_detected(inner: int, tmp_path: Path, replace: str):
    other, file = tmp_path / "other.db", Path("it.db")
    other.write_bytes(b"")
    file.touch()
    identity = find_file(inner, "it.db", "rw")
    file.unlink()
    match replace:
        case "symlink":
            file.symlink_to(other)
        case "hard link":
            os.link(other, file)
        case _:
            file.touch()
            os.rename(other, file)
    before = open_files()
    connection = apsw.Connection("it.db", flags=apsw.SQLITE_OPEN_READWRITE)
    with pytest.raises(Failed, match="replaced"):
        check_opened(before, identity, "it.db")
    connection.close()


def test_the_file_that_was_checked_may_be_opened(inner: int):
    identity = find_file(inner, "it.db", "rwc")
    before = open_files()
    connection = apsw.Connection("it.db", flags=apsw.SQLITE_OPEN_READWRITE)
    check_opened(before, identity, "it.db")
    connection.close()


def test_links_folders_and_devices_are_refused(inner: int):
    os.mkfifo("pipe.db")
    os.mkdir("folder.db")
    Path("loop.db").symlink_to("loop.db")
    for name in ("pipe.db", "folder.db", "loop.db"):
        for mode in ("ro", "rw", "rwc"):
            with pytest.raises(Failed):
                find_file(inner, name, mode)


def test_the_number_of_files_of_a_tenant_is_limited(inner: int):
    for number in range(MOST_FILES):
        find_file(inner, f"{number}.db", "rwc")
        Path(f"{number}.db-wal").touch()
    with pytest.raises(Failed, match="may have"):
        find_file(inner, "more.db", "rwc")
    find_file(inner, "0.db", "rwc")


@pytest.mark.parametrize("place", ["data", "data/inside", ".", "link"])
def test_a_folder_that_overlaps_the_data_folder_is_refused(
    connections: Connections, data: Path, tmp_path: Path, place: str
):
    (tmp_path / "link").symlink_to(data)
    rules = SqlRules(sqlite_folder=str(tmp_path / place))
    with pytest.raises(BadFolder, match="SQL_SQLITE_FOLDER"):
        SqlExecutor(connections.find, OwnDatabase(data, None), SqlLimits(), rules)
