from __future__ import annotations

import asyncio
import ssl
import threading

import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql import connecting
from duetime.executors.sql.executor import SqlExecutor
from executors.sql.conftest import Connections, attempt_of, sentence_of


@pytest.mark.parametrize("sslmode", ["require", "verify-ca", "verify-full"])
async def test_a_tls_context_is_created_once_and_in_a_thread(
    executor: SqlExecutor, connections: Connections, monkeypatch: pytest.MonkeyPatch, sslmode: str
):
    """To create one reads the system's roots: for each connection, that would delay everything else on the node."""
    made: list[threading.Thread] = []
    make = connecting.context_of

    def counted(mode: str) -> ssl.SSLContext:
        made.append(threading.current_thread())
        return make(mode)

    async def has_no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        writer.close()

    monkeypatch.setattr(connecting, "context_of", counted)
    monkeypatch.setattr(connecting, "_contexts", {}, raising=False)
    server = await asyncio.start_server(has_no_tls, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections.urls["it"] = f"postgresql://me@127.0.0.1:{port}/app?sslmode={sslmode}"
    for _ in range(3):
        sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.CONNECTION_ERROR)
    server.close()
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
