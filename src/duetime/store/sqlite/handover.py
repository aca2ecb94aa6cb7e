"""Who owns a data folder: the process that holds its lock. No node starts on a folder with a promotion's mark."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import IO, NamedTuple

import apsw

from duetime.domain.instants import format_instant
from duetime.store import StoreUnusable
from duetime.store.sqlite.connection import LOCK_NAME, get_version, lock_folder

PROMOTING = "promote"  # the purpose in the lock file


class Holder(NamedTuple):
    pid: int
    purpose: str  # empty: it is a node


def try_lock(folder: Path) -> IO[str] | None:
    """Takes the folder's lock for a promotion. Returns None if another process holds it."""
    try:
        return lock_folder(folder, PROMOTING)
    except StoreUnusable:
        return None


def find_holder(folder: Path) -> Holder | None:
    """Returns the process that holds the folder's lock. None if that is uncertain: then send no signal."""
    file = folder / LOCK_NAME
    try:
        number, _, purpose = file.read_text().partition(" ")
        is_certain = number.isdigit() and _has_open(int(number), os.stat(file))
    except (OSError, UnicodeDecodeError):
        return None
    return Holder(int(number), purpose) if is_certain else None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Returns whether the process has the file open. The pid may be of another container, or of a dead process."""
    if not os.path.isdir("/proc/self/fd"):
        return True
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            if os.path.samestat(os.stat(entry.path), file):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


class Mark(NamedTuple):
    """A promotion. `ended_at` is None until it is known here that the target has everything."""

    id: str
    target: str
    began_at: int
    ended_at: int | None


def get_mark(connection: apsw.Connection) -> Mark | None:
    if get_version(connection) == 0:
        return None  # a new file: it has no tables yet
    row = connection.execute("SELECT id, target, began_at, ended_at FROM promotion").fetchone()
    return None if row is None else Mark(*row)


def set_mark(connection: apsw.Connection, target: str, now: int) -> Mark:
    """Returns the existing mark, or else stores a new one and returns that."""
    connection.execute("BEGIN IMMEDIATE")  # a node may be writing
    try:
        found = get_mark(connection)
        if found is None:
            found = Mark(str(uuid.uuid4()), target, now, None)
            connection.execute("INSERT INTO promotion VALUES (?, ?, ?, ?)", found)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return found


def end_mark(connection: apsw.Connection, mark: Mark, now: int) -> None:
    """Stores the mark as ended, even if another process has removed it meanwhile."""
    connection.execute("INSERT OR REPLACE INTO promotion VALUES (?, ?, ?, ?)", mark._replace(ended_at=now))


def remove_mark(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM promotion")


def refuse_promoted(connection: apsw.Connection, folder: Path) -> None:
    """Raises StoreUnusable if the jobs were or may have been moved: two nodes must never run the same jobs."""
    mark = get_mark(connection)
    if mark is None:
        return
    there = place(mark.target)
    undo = f"duetime promote --undo --data {folder} --to postgresql://…"
    if mark.ended_at is None:
        raise StoreUnusable(
            f"{folder} is on its way to {there}, since {format_instant(mark.began_at)}. Finish with: "
            f"duetime promote --data {folder} --to postgresql://…; or undo it with: {undo}"
        )
    raise StoreUnusable(
        f"{folder} was promoted to {there} at {format_instant(mark.ended_at)}: its jobs run there. Start a node there "
        f"with: duetime serve --database-url postgresql://…; or undo it with: {undo}"
    )


def place(target: str) -> str:
    host, _, database = target.rpartition("/")
    return f"the database {database} on {host}"
