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
    return {name: expand(translate(sql)) for name, sql in read_blocks(__package__, file_names).items()}


def translate(sql: str) -> str:
    """Returns shared SQL in the dialect of SQLite: without types of values, and with its functions for JSON and ids."""
    sql = re.sub(r"(?<!:)(:[a-z_]+)::uuid\b", r"unhex(\1, '-')", sql)
    sql = re.sub(r"(\w+)::json\b", r"json(\1)", sql)
    return re.sub(r"::\w+", "", sql).replace("json_build_array", "json_array")


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
