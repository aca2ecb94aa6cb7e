"""Checkpoints: pages that were committed to the log (WAL) are copied into the database file, beside the writer.

SQLite itself would do that at the end of a commit, and all who wait for that commit would wait for the disk with it:
40 to 150 ms, in the middle of a burst. Here a thread of its own copies while others are written. The log begins anew
only when all of it is copied and nobody writes, so the writer copies the last few pages, between two commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import apsw
import structlog

PAGES = 4000  # in the log when they are copied: 16 MB
MORE_PAGES = 1000  # since they were last copied, if the log could not begin anew
MOST_PAGES = 16_000  # where the disk can't keep up, the writer copies them itself, and waits for that
FEW_PAGES = 500  # that the writer may copy by itself
MOST_ROUNDS = 4  # of copying what came while the round before was copied

log = structlog.get_logger()


class Checkpointer:
    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._wanted = threading.Event()
        self._is_stopping = False
        self._pages = 0  # in the log
        self._noted = 0  # of them when they were last asked to be copied
        self._finished = 0  # of them when the writer last copied some
        self._copying = threading.Lock()  # by one of the two at a time
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
        """From here on, commits of this connection end without a checkpoint of their own."""
        connection.set_wal_hook(self._note)

    def finish(self, connection: apsw.Connection) -> None:
        """Copy the last pages, if all others are copied. For the writer, when it has answered."""
        if self._is_to_finish or self._pages >= max(MOST_PAGES, self._finished + MORE_PAGES):
            self._is_to_finish = False
            self._finished = self._pages
            with suppress(apsw.Error), self._copying:  # an error is tried again, and said, beside the writer
                _copy(connection)

    def _note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._pages:  # it has begun anew
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
                # Nothing is lost: all of it is in the log, which grows until it can be copied again.
                log.warning("the log was not copied into the database", error=f"{type(error).__name__}: {error}")
        if connection is not None:
            connection.close()

    def _copy_all(self, connection: apsw.Connection) -> bool:
        """Copy while others are written. Returns whether some are left, which the writer is to copy."""
        for _ in range(MOST_ROUNDS):
            with self._copying:
                left = _copy(connection)
            if left <= FEW_PAGES:
                return left > 0
        return True


def _copy(connection: apsw.Connection) -> int:
    """Copy what nobody reads from the log. Returns how many pages are left."""
    try:
        pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.BusyError:
        return 0  # another process copies them, one that makes a backup, say
    return int(pages - copied)
