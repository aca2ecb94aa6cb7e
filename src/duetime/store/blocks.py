"""Reads .sql files of named blocks (`-- name: …`), so that SQL is in SQL files and can be pasted into a shell."""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def read_blocks(file: Traversable) -> dict[str, str]:
    """Returns the SQL of each block by its name."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def read_migrations(folder: Traversable) -> list[tuple[int, str]]:
    """Returns (number, SQL) in order; a file's number is the schema version that it creates."""
    scripts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )
    return [(int(name.split("_", 1)[0]), sql) for name, sql in scripts]
