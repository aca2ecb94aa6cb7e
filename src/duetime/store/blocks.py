"""Reads .sql files of named blocks (`-- name: …`), so that SQL is in SQL files and can be pasted into a shell."""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable

# The files that commands are applied with. A module `on_jobs` uses mostly `jobs.sql`; `commits.sql` is of all.
COMMANDS = (
    "jobs.sql", "due.sql", "executions.sql", "chains.sql", "nodes.sql", "identity.sql", "connections.sql",
    "circuits.sql", "housekeeping.sql", "commits.sql",
)  # fmt: skip

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*$", re.MULTILINE)


def read_blocks(file: Traversable) -> dict[str, str]:
    """Returns the SQL of each block by its name, without comments."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    return {
        name: _COMMENT.sub("", sql).strip().removesuffix(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)
    }


def read_migrations(folder: Traversable) -> list[tuple[int, str]]:
    """Returns (number, SQL) in order; a file's number is the schema version that it creates."""
    scripts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )
    return [(int(name.split("_", 1)[0]), sql) for name, sql in scripts]
