"""Committed pages are copied from the log into the database file, and no commit waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from duetime.store.sqlite.checkpointer import MORE_PAGES, MOST_PAGES, PAGES, Checkpointer
from duetime.store.sqlite.connection import FILE_NAME, open_connection
from engine.stage import until

A_COMMIT = 40  # pages
PAGE_BYTES = 4096


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[apsw.Connection]:
    with closing(open_connection(tmp_path, writer=True)) as connection:
        connection.execute("PRAGMA synchronous = OFF; CREATE TABLE pages (id INTEGER PRIMARY KEY, page BLOB)")
        yield connection


@pytest.fixture
def checkpointer(tmp_path: Path, writer: apsw.Connection) -> Iterator[Checkpointer]:
    made = Checkpointer(lambda: open_connection(tmp_path, writer=True))
    made.watch(writer)
    made.start()
    yield made
    made.stop()


def commit(writer: apsw.Connection, number: int) -> None:
    """Writes the same rows again and again, so that the file itself stays small."""
    size = A_COMMIT * PAGE_BYTES
    writer.execute("INSERT OR REPLACE INTO pages VALUES (?, zeroblob(?))", (number % 100, size))


def log_pages(folder: Path) -> int:
    return (folder / f"{FILE_NAME}-wal").stat().st_size // PAGE_BYTES


def test_a_commit_copies_nothing(tmp_path: Path, writer: apsw.Connection, checkpointer: Checkpointer):
    checkpointer.stop()
    before = (tmp_path / FILE_NAME).read_bytes()
    for number in range(2 * PAGES // A_COMMIT):
        commit(writer, number)
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert log_pages(tmp_path) > PAGES


async def test_without_further_writes_the_whole_log_is_copied(
    tmp_path: Path, writer: apsw.Connection, checkpointer: Checkpointer
):
    for number in range(PAGES // A_COMMIT + 1):
        commit(writer, number)
    copied = PAGES * 9 // 10 * PAGE_BYTES
    await until(lambda: (tmp_path / FILE_NAME).stat().st_size > copied)


def test_the_log_restarts_although_commits_never_pause(
    tmp_path: Path, writer: apsw.Connection, checkpointer: Checkpointer
):
    longest = 0
    for number in range(20 * PAGES // A_COMMIT):
        commit(writer, number)
        checkpointer.finish(writer)
        longest = max(longest, log_pages(tmp_path))
    assert longest <= MOST_PAGES + MORE_PAGES


def test_pages_that_can_not_be_copied_now_are_copied_later(tmp_path: Path, writer: apsw.Connection):
    failures = [apsw.CantOpenError("no"), apsw.IOError("no")]

    def connect() -> apsw.Connection:
        if failures:
            raise failures.pop()
        return open_connection(tmp_path, writer=True)

    checkpointer = Checkpointer(connect)
    checkpointer.watch(writer)
    checkpointer.start()
    number = 0
    try:
        while (tmp_path / FILE_NAME).stat().st_size < PAGES // 2 * PAGE_BYTES and number < 100 * PAGES // A_COMMIT:
            commit(writer, number)
            checkpointer.finish(writer)
            number += 1
    finally:
        checkpointer.stop()
    assert not failures
    assert (tmp_path / FILE_NAME).stat().st_size >= PAGES // 2 * PAGE_BYTES
