"""The named SQL blocks and migrations of SQLite."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from duetime.store.blocks import read_blocks, read_migrations

MIGRATIONS = files(__package__).joinpath("migrations")
_UUID_TEXT = re.compile(r"uuid_text\(([\w.]+)\)")


@cache
def load_blocks(*file_names: str) -> dict[str, str]:
    found = {}
    for file_name in file_names:
        blocks = read_blocks(files(__package__).joinpath("sql", file_name))
        found.update({name: expand(sql) for name, sql in blocks.items()})
    return found


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
    return read_migrations(MIGRATIONS)
