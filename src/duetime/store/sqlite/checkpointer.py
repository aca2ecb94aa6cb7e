"""Checkpoints: copies committed pages from the log (WAL) into the database file, on a separate thread.

SQLite itself would do that at the end of a commit, and all callers of that commit would wait for the disk: 40 to 150 ms
in the middle of a burst. Here a thread copies pages while others are written. The log restarts only when all of it is
copied and no connection writes, so the writer copies the last few pages, between two commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import apsw
import structlog

PAGES = 4000  # in the log at which copying starts: 16 MB
MORE_PAGES = 1000  # since the last copy, if the log could not restart
MOST_PAGES = 16_000  # if the disk can't keep up, the writer copies them itself, and waits
FEW_PAGES = 500  # that the writer may copy by itself
MOST_ROUNDS = 4  # each copies the pages that were written during the round before

log = structlog.get_logger()


class Checkpointer:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._wanted = threading.Event()
        self._is_stopping = False
        self._pages = 0  # in the log
        self._noted = 0  # pages in the log when a copy was last requested
        self._finished = 0  # pages in the log when the writer last copied some
        self._copying = threading.Lock()  # only one of the two threads copies at a time
        self._is_to_finish = False
        self._thread = threading.Thread(target=self._run, name="duetime-checkpointer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, connection: apsw.Connection) -> None:
        """From here on, SQLite makes no checkpoint at the end of this connection's commits."""
        connection.set_wal_hook(self._note)

    def finish(self, connection: apsw.Connection) -> None:
        """Copies the last pages, if all others are copied. The writer calls this after it has returned its results."""
        if self._is_to_finish or self._pages >= max(MOST_PAGES, self._finished + MORE_PAGES):
            self._is_to_finish = False
            self._finished = self._pages
            with suppress(apsw.Error), self._copying:  # the other thread retries, and logs errors
                _copy(connection)

    def _note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._pages:  # the log has restarted
            self._noted = self._finished = 0
        self._pages = pages
        if pages >= PAGES and pages >= self._noted + MORE_PAGES:
            self._noted = pages
            self._wanted.set()
        return apsw.SQLITE_OK

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while self._wanted.wait() and not self._is_stopping:
            self._wanted.clear()
            try:
                connection = connection or self._connect()
                self._is_to_finish = self._copy_all(connection)
            except apsw.Error as error:
                # Nothing is lost: the pages stay in the log, which grows until copying works again.
                log.warning("the log was not copied into the database", error=f"{type(error).__name__}: {error}")
        if connection is not None:
            connection.close()

    def _copy_all(self, connection: apsw.Connection) -> bool:
        """Copies pages while others are written. Returns whether some are left for the writer to copy."""
        for _ in range(MOST_ROUNDS):
            with self._copying:
                left = _copy(connection)
            if left <= FEW_PAGES:
                return left > 0
        return True


def _copy(connection: apsw.Connection) -> int:
    """Copies the pages that no reader needs in the log. Returns how many pages are left."""
    try:
        pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.BusyError:
        return 0  # another process copies them, such as a backup
    return int(pages - copied)
