"""Slow statements and many connections of one tenant: statements of others run, and their connections stay open."""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import apsw
import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.sqlite import PLACES
from executors.sql.conftest import Connections, Run, attempt_of, rows_of, sentence_of


async def test_a_tenant_whose_statements_hold_every_process_does_not_delay_another(
    executor: SqlExecutor, connections: Connections, limits: SqlLimits, folder: Path
):
    (folder / "hostile").mkdir()
    with ExitStack() as locks:
        slow = []
        for number in range(PLACES // limits.connections + 2):
            file = folder / "hostile" / f"{number}.db"
            lock = locks.enter_context(closing(apsw.Connection(str(file))))
            lock.execute("CREATE TABLE t (n); BEGIN EXCLUSIVE")
            connections.urls[f"slow-{number}"] = f"sqlite:///{file.name}"
            slow += [
                attempt_of("SELECT * FROM t", connection=f"slow-{number}", tenant="hostile", timeout_seconds=60)
                for _ in range(limits.connections)
            ]
        waiting = [asyncio.create_task(executor.execute(task)) for task in slow]
        for _ in range(10):
            await asyncio.sleep(0)  # each waits for the response of a process
        connections.urls["quick"] = "sqlite:///quick.db?mode=rwc"
        quick = (executor.execute(attempt_of("SELECT 1", connection="quick", tenant="other")) for _ in range(10))
        assert [rows_of(outcome) for outcome in await asyncio.gather(*quick)] == [[[1]]] * 10
        assert not any(attempt.done() for attempt in waiting)
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("limits", [SqlLimits(pools=4)])
async def test_many_connections_of_one_tenant_do_not_close_those_of_another(
    executor: SqlExecutor, postgres: Run, connections: Connections, url: str, session: asyncpg.Connection
):
    parts = urlsplit(url)
    user, _, where = parts.netloc.rpartition("@")
    warm = rows_of(await postgres("SELECT pg_backend_pid()", tenant="other"))
    for number in range(8):
        connections.urls[f"c{number}"] = urlunsplit(parts._replace(netloc=f"{user}:{number}@{where}"))
        await postgres("SELECT 1", tenant="hostile", connection=f"c{number}")
    assert rows_of(await postgres("SELECT pg_backend_pid()", tenant="other")) == warm


async def test_servers_whose_names_hang_do_not_keep_another_tenant_from_its_own(
    executor: SqlExecutor, connections: Connections, url: str, monkeypatch: pytest.MonkeyPatch
):
    begun, released, system = queue.SimpleQueue[str](), threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).startswith("slow"):
            begun.put(str(host))
            released.wait(60)
        return system("127.0.0.1" if str(host).endswith(".example") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    slow = []
    for number in range(40):
        connections.urls[f"slow-{number}"] = url.replace("127.0.0.1", f"slow-{number}.example")
        task = attempt_of("SELECT 1", connection=f"slow-{number}", tenant="hostile", timeout_seconds=60)
        slow.append(asyncio.create_task(executor.execute(task)))
    try:
        await asyncio.to_thread(begun.get, timeout=30)
        connections.urls["quick"] = url.replace("127.0.0.1", "quick.example")
        outcome = await executor.execute(attempt_of("SELECT 1", connection="quick", tenant="other"))
        assert rows_of(outcome) == [[1]]
    finally:
        released.set()
        await asyncio.gather(*slow)


async def test_tls_checks_the_name_although_the_connection_goes_to_its_address(
    executor: SqlExecutor, connections: Connections, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    system, asked_for = socket.getaddrinfo, list[str | None]()
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: system("127.0.0.1" if host == "db.example" else host, *rest, **more),
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    tls.sni_callback = lambda _, name, __: asked_for.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # the request for TLS
        writer.write(b"S")
        with suppress(OSError):
            await writer.start_tls(tls)
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connections.urls["it"] = f"postgresql://me@db.example:{port}/app?sslmode=require"
        sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.CONNECTION_ERROR)
    assert asked_for == ["db.example"]
