"""Checks of `duetime doctor` on a data folder. Pure functions: values in, a status and sentences out."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.doctor import Check, ok, problem, size, warning

MIB = 1 << 20
SPACE_WARNING, SPACE_PROBLEM = 1024 * MIB, 100 * MIB
WAL_WARNING = 256 * MIB  # a node truncates it to 64 MiB whenever it can


def file(path: str, size_bytes: int) -> Check:
    return ok("file", f"{path} is there and can be read; it has {size(size_bytes)}.")


def integrity(found: Sequence[str]) -> Check:
    """`found`: the lines that SQLite's quick check returned."""
    if list(found) == ["ok"]:
        return ok("integrity", "SQLite's quick check finds no damage.")
    return problem(
        "integrity", f"The database is damaged: {'; '.join(found[:3])}.",
        "Restore it from a backup, or recover what can be read with: sqlite3 duetime.db .recover",
    )  # fmt: skip


def journal_mode(mode: str) -> Check:
    if mode.lower() == "wal":
        return ok("journal mode", "The journal mode is WAL.")
    return warning(
        "journal mode", f"The journal mode is {mode.upper()}, not WAL.",
        "A node sets it when it starts; some other program has changed it.",
    )  # fmt: skip


def free_space(free: int, total: int) -> Check:
    found = f"{size(free)} of {size(total)} are free on its file system."
    if free >= SPACE_WARNING:
        return ok("free space", found)
    advice = "Free some space, or keep less history (EXECUTION_HISTORY_RETENTION): without room nothing can be written."
    return (warning if free >= SPACE_PROBLEM else problem)("free space", found, advice)


def running(owner: str | None) -> Check:
    """`owner`: the process that holds the folder's lock."""
    if owner is None:
        return warning("node", "No node runs on this folder: nothing falls due.", "Start one: `duetime serve`.")
    return ok("node", f"A node runs on this folder (process {owner}).")


def moved(target: str) -> Check:
    """The folder was promoted: no node runs here, and none should."""
    return warning(
        "node", f"The jobs of this folder have moved to {target}, and run there.",
        f"Look there: `duetime doctor --database-url postgresql://{target}`.",
    )  # fmt: skip


def wal_size(size_bytes: int) -> Check:
    found = f"The write-ahead log has {size(size_bytes)}."
    if size_bytes <= WAL_WARNING:
        return ok("write-ahead log", found)
    return warning(
        "write-ahead log", found, "Some program has been reading the database for long: end it, or restart the node."
    )
