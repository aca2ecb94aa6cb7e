"""Reads .sql files of named blocks (`-- name: …`), so that SQL is in SQL files and can be pasted into a shell."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

MIGRATIONS = files(__package__).joinpath("migrations")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_UUID_TEXT = re.compile(r"uuid_text\(([\w.]+)\)")


@cache
def load_blocks(file_name: str) -> dict[str, str]:
    text = files(__package__).joinpath("sql", file_name).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: expand(sql.strip().removesuffix(";")) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def expand(sql: str) -> str:
    """Replaces `uuid_text(x)` by the expression that formats 16 bytes as a UUID.

    (A virtual column would read better, but SQLite computes it at each insert and update: a quarter of their time,
    measured.)
    """
    return _UUID_TEXT.sub(
        r"format('%.8s-%.4s-%.4s-%.4s-%s', lower(hex(\1)), substr(lower(hex(\1)), 9), substr(lower(hex(\1)), 13), "
        r"substr(lower(hex(\1)), 17), substr(lower(hex(\1)), 21))",
        sql,
    )


def load_migrations() -> list[tuple[int, str]]:
    """Returns (number, SQL) in order; a file's number is the schema version that it creates."""
    scripts = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in MIGRATIONS.iterdir() if entry.name.endswith(".sql")
    )
    return [(int(name.split("_", 1)[0]), sql) for name, sql in scripts]
