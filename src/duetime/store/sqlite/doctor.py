"""Measures a data folder for `duetime doctor`. checks.py judges the values.

It writes nothing and holds no lock that a node would wait for. A node may run on the folder meanwhile.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from duetime.domain import doctor
from duetime.domain.doctor import COUNTED, SHOWN, Check
from duetime.store.sqlite import checks
from duetime.store.sqlite.blocks import load_blocks, load_migrations
from duetime.store.sqlite.connection import FILE_NAME, get_lock_owner, get_version
from duetime.store.sqlite.handover import get_mark

STEPS = 10_000  # of SQLite's virtual machine, between two checks of the time limit


class SqliteDoctor:
    """`seconds`: how long one check may take. The check of the whole file for damage has `integrity_seconds`."""

    def __init__(
        self, folder: Path, seconds: float, integrity_seconds: float, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._seconds = seconds
        self._integrity_seconds = integrity_seconds
        self._wall_clock = wall_clock
        self._sql = load_blocks("doctor.sql")

    def file(self) -> Check:
        if not self._path.exists():
            return doctor.problem(
                "file", f"There is no database at {self._path}.", "Name its folder with --data, or start a node."
            )
        with self._opened(self._seconds) as connection:
            list(connection.execute("SELECT count(*) FROM sqlite_schema"))
        return checks.file(str(self._path), self._path.stat().st_size)

    def schema(self) -> Check:
        with self._opened(self._seconds) as connection:
            return doctor.schema(get_version(connection), load_migrations()[-1][0])

    def integrity(self) -> Check:
        with self._opened(self._integrity_seconds) as connection:
            try:
                found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(10)")]
            except apsw.CorruptError as error:
                found = [str(error)]
            return checks.integrity(found)

    def journal_mode(self) -> Check:
        with self._opened(self._seconds) as connection:
            return checks.journal_mode(str(connection.pragma("journal_mode")))

    def free_space(self) -> Check:
        disk = shutil.disk_usage(self._folder)
        return checks.free_space(disk.free, disk.total)

    def running(self) -> Check:
        owner = get_lock_owner(self._folder)
        with suppress(apsw.Error):  # another check reports that it can't be read
            if owner is None and (target := self._moved_to()):
                return checks.moved(target)
        return checks.running(owner)

    def due_timers(self) -> Check:
        if self._moved_to():
            return doctor.due_timers(0, 0)  # its jobs run at the promotion's target
        count, late = self._row("count_due_timers", most=COUNTED + 1)
        return doctor.due_timers(count, late)

    def waiting_executions(self) -> Check:
        if self._moved_to():
            return doctor.waiting_executions(0, 0)
        count, late = self._row("count_waiting_executions", most=COUNTED + 1)
        return doctor.waiting_executions(count, late)

    def waiting_functions(self) -> Check:
        if self._moved_to():
            return doctor.waiting_functions(0, 0, 0)
        count, late, workers = self._row("count_waiting_functions", most=COUNTED + 1)
        missing = self._rows("list_missing_functions", most=COUNTED + 1, named=SHOWN + 1) if count else []
        return doctor.waiting_functions(count, late, workers, [name for (name,) in missing])

    def lost_executions(self, reconcile_seconds: float) -> Check:
        if self._moved_to():
            return doctor.lost_executions(0, None, reconcile_seconds)
        count, since = self._row("count_lost_executions", is_running=get_lock_owner(self._folder) is not None)
        return doctor.lost_executions(count, since, reconcile_seconds)

    def _moved_to(self) -> str | None:
        """Returns the target's host and database if the folder was promoted; else None."""
        if not self._path.exists():
            return None
        with self._opened(self._seconds) as connection:
            mark = get_mark(connection)
            return None if mark is None or mark.ended_at is None else mark.target

    def wal_size(self) -> Check:
        wal = self._path.with_name(f"{FILE_NAME}-wal")
        return checks.wal_size(wal.stat().st_size if wal.exists() else 0)

    def _row(self, block: str, **values: Any) -> Any:
        return self._rows(block, **values)[0]

    def _rows(self, block: str, **values: Any) -> list[Any]:
        now = int(self._wall_clock() * 1000)
        with self._opened(self._seconds) as connection:
            return list(connection.execute(self._sql[block], {"now": now, **values}))

    @contextmanager
    def _opened(self, seconds: float) -> Iterator[apsw.Connection]:
        deadline = time.monotonic() + seconds
        with closing(apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(int(seconds * 1000))
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
            try:
                yield connection
            except apsw.InterruptError:
                raise TimeoutError(f"it took longer than {seconds:g} s") from None
