"""The named SQL blocks and migrations of PostgreSQL. Values are named (`:job`), as in psql; asyncpg gets `$1, …`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from duetime.store.blocks import read_blocks, read_migrations

MIGRATIONS = files(__package__).joinpath("migrations")
_VALUE = re.compile(r"(?<!:):([a-z_]+)\b")  # and not the type in `x::uuid`


class Statement(NamedTuple):
    sql: str
    names: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        return [values[name] for name in self.names]

    def nothing(self) -> list[Any]:
        """Returns arguments with which a statement on pages does nothing: empty columns."""
        numbers = range(1, len(self.names) + 1)
        return [[] if re.search(rf"\${number}::\w+\[\]", self.sql) else None for number in numbers]


@lru_cache(maxsize=512)
def statement(sql: str) -> Statement:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return Statement(_VALUE.sub(number, sql), tuple(names))


@cache
def load_blocks(*file_names: str) -> dict[str, Statement]:
    return {name: statement(sql) for name, sql in read_blocks(__package__, file_names).items()}


def load_migrations() -> list[tuple[int, str]]:
    return read_migrations(MIGRATIONS)
