"""Reads .sql files of named blocks (`-- name: …`), so that SQL stands in SQL files and pastes into a shell."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_blocks(file_name: str) -> dict[str, str]:
    text = files(__package__).joinpath("sql", file_name).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip().removesuffix(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def load_migrations() -> list[tuple[int, str]]:
    """(number, SQL) in order; a file's number is the schema version that it makes."""
    folder = files(__package__).joinpath("migrations")
    scripts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )
    return [(int(name.split("_", 1)[0]), sql) for name, sql in scripts]
