"""Reads .sql files of named blocks (`-- name: …`), so that SQL is in SQL files and can be pasted into a shell.

The folder `sql` beside this module has the blocks that both stores use: in the dialect of PostgreSQL, which
`sqlite/blocks.py` translates. Each store has its own blocks in a folder `sql`, in files of the same names.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

# The files that commands are applied with. A module `on_jobs` uses mostly `jobs.sql`; all use `commits.sql`.
COMMANDS = (
    "jobs.sql", "due.sql", "executions.sql", "chains.sql", "watched.sql", "nodes.sql", "identity.sql",
    "connections.sql", "channels.sql", "circuits.sql", "alerts.sql", "housekeeping.sql",
    "statistics.sql", "events.sql", "commits.sql",
)  # fmt: skip

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*$", re.MULTILINE)


def read_blocks(package: str, file_names: tuple[str, ...]) -> dict[str, str]:
    """Returns the SQL of each block by its name, without comments: shared blocks, and those of the store's package."""
    found: dict[str, str] = {}
    for file in (files(owner).joinpath("sql", name) for owner in (__package__, package) for name in file_names):
        if file.is_file():
            _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
            sqls = [_COMMENT.sub("", sql).strip().removesuffix(";") for sql in parts[1::2]]
            found.update(zip(parts[::2], sqls, strict=True))
    return found


def read_migrations(folder: Traversable) -> list[tuple[int, str]]:
    """Returns (number, SQL) in order; a file's number is the schema version that it creates."""
    scripts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )
    return [(int(name.split("_", 1)[0]), sql) for name, sql in scripts]
