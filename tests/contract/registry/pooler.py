"""Simulates PgBouncer in transaction mode, in the worst case: each transaction goes to another server connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def pooler(server_socket: str, folder: Path, size: int = 3) -> AsyncIterator[None]:
    """Listens in `folder` like a server, and forwards each transaction of its clients to another connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers: list[Pipe] = [await asyncio.open_unix_connection(server_socket) for _ in range(size)]
        try:
            await _relay((reader, writer), servers)
        finally:
            for _, server in servers:
                server.close()
            writer.close()

    listening = await asyncio.start_unix_server(serve, str(folder / ".s.PGSQL.5432"))
    try:
        yield
    finally:
        listening.close()


async def _relay(client: Pipe, servers: list[Pipe]) -> None:
    length = await client[0].readexactly(4)
    hello = length + await client[0].readexactly(int.from_bytes(length, "big") - 4)
    for number, (reader, writer) in enumerate(servers):
        writer.write(hello)
        while True:
            answer = await _message(reader)
            if number == 0:
                client[1].write(answer)
            if answer[:1] == b"Z":  # ready for a query
                break
    turns = cycle(servers)
    current = next(turns)

    async def answers() -> None:
        nonlocal current
        while True:
            answer = await _message(current[0])
            if answer[:1] == b"Z" and answer[-1:] == b"I":  # no transaction is open: the next one goes elsewhere
                current = next(turns)
            client[1].write(answer)

    async with asyncio.TaskGroup() as both:
        answering = both.create_task(answers())
        try:
            while True:
                message = await _message(client[0])  # first: `current` may change meanwhile
                current[1].write(message)
        except asyncio.IncompleteReadError:  # the client has disconnected
            answering.cancel()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
