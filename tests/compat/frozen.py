"""The data of a frozen version for the tests: its recorded messages, and databases made from its SQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec

from duetime.private_files import make_folder
from duetime.store.sqlite.connection import FILE_NAME

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in HERE.iterdir() if (folder / "COMMIT").is_file())


class Exchange(msgspec.Struct, kw_only=True):
    """A request and its response, as recorded. `step`: the part of the scenario. Streams: a list of frames."""

    operation: str
    sender: str
    step: str
    method: str
    path: str
    headers: dict[str, str]
    request: Any
    status: int
    response_headers: dict[str, str]
    response: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.sender}, {self.step}): {self.status}"


def exchanges_of(version: str) -> list[Exchange]:
    found: list[Exchange] = []
    for file in sorted((HERE / version / "wire").glob("*.json")):
        found += msgspec.json.decode(file.read_bytes(), type=list[Exchange])
    return found


def frames_of(stream: str) -> list[str]:
    """The events of a stream of server-sent events, each as its text, without comments and other lines."""
    return [f"{block}\n\n" for block in stream.split("\n\n")[:-1] if not block.startswith((":", "retry"))]


def sql_of(version: str, store: str, *parts: str) -> str:
    """`parts`: schema and fresh, or schema and rows."""
    return "".join((HERE / version / store / f"{part}.sql").read_text() for part in parts)


def make_sqlite(folder: Path, sql: str) -> None:
    """A data folder with the database that this SQL makes."""
    make_folder(folder)
    with closing(apsw.Connection(str(folder / FILE_NAME))) as connection:
        list(connection.execute(f"BEGIN; {sql} COMMIT"))


async def make_postgres(connection: asyncpg.Connection, sql: str) -> None:
    await connection.execute(f"BEGIN; {sql} COMMIT")
