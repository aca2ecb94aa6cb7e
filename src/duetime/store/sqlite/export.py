"""Reads a whole database for a promotion: its tables page by page, and the facts that are compared at the end.

The caller must hold the folder's lock. It changes only what every start changes: it migrates the schema and ends
earlier nodes. (handover.py writes the mark of the promotion.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from duetime.domain.instants import DAY, format_instant
from duetime.store import StoreUnusable
from duetime.store.sqlite.blocks import load_blocks, load_migrations
from duetime.store.sqlite.connection import (
    FILE_NAME,
    check_integrity,
    damaged,
    fence_all_nodes,
    get_version,
    migrate,
    open_connection,
)

PAGE_ROWS = 5000
PAGE_BYTES = 8 * 1024 * 1024  # of the text in a page's last column
SUMS = ("jobs", "timers", "executions", "attempts", "audit", "keys")

Row = tuple[Any, ...]
Facts = dict[str, int | str]


def open_source(folder: Path) -> apsw.Connection:
    """Returns a connection to the database. Raises StoreUnusable if there is none, or it can't be read."""
    if not (folder / FILE_NAME).is_file():
        raise StoreUnusable(f"{folder} holds no {FILE_NAME}: name the folder of the node's database with --data")
    try:
        connection = open_connection(folder, writer=True)
        get_version(connection)
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise damaged(str(error)) from None
    except apsw.Error as error:
        raise StoreUnusable(f"{folder} can't be opened ({error}). May this user write there?") from None
    return connection


def get_versions(connection: apsw.Connection) -> tuple[int, int]:
    """Returns (the database's version, the newest that this Duetime knows)."""
    return get_version(connection), load_migrations()[-1][0]


class Export:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._sql = load_blocks("export.sql")

    def prepare(self) -> None:
        """Does what a node does at its start: checks integrity, migrates, ends earlier nodes. Ends workers, too: they
        join again at the target."""
        check_integrity(self.connection)
        migrate(self.connection)
        fence_all_nodes(self.connection, with_workers=True)

    def count_rows(self) -> int:
        return int(self._value("count_rows"))

    def get_event_head(self) -> int:
        """Returns the number of the last page of events."""
        return int(self._value("get_event_head"))

    def list_days(self) -> list[int]:
        """Returns the UTC days that have executions."""
        days: list[int] = []
        begin = bytes(16)
        while (found := self._value("get_first_from", id=begin)) is not None:
            days.append(int.from_bytes(found[:6], "big") // DAY)
            begin = ((days[-1] + 1) * DAY).to_bytes(6, "big") + bytes(10)
        return days

    def read(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        """Yields pages of a table, in storage order. The column that may be long must be the last."""
        rows = iter(self.connection.execute(f"SELECT {', '.join(columns)} FROM {table}"))
        while page := list(_page(rows)):
            yield page

    def list_facts(self) -> Facts:
        facts: Facts = {name: int(count) for name, count in self.connection.execute(self._sql["list_facts"])}
        for place, (due_at, job) in enumerate(self.connection.execute(self._sql["list_soonest"]), 1):
            facts[f"earliest due {place}"] = f"{format_instant(due_at)} {job}"
        for table in SUMS:
            facts[f"checksum of {table}"] = f"{self._sum(f'sum_{table}'):x}"
        return facts

    def _sum(self, block: str) -> int:
        lines = self.connection.execute(self._sql[block])
        return sum(int.from_bytes(sha256(line.encode()).digest()[:7], "big") for (line,) in lines)

    def _value(self, block: str, **values: Any) -> Any:
        ((value,),) = self.connection.execute(self._sql[block], values)
        return value


def _page(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in islice(rows, PAGE_ROWS):
        yield row
        last = row[-1]
        size += len(last) if last.__class__ is str else 0
        if size >= PAGE_BYTES:
            return
