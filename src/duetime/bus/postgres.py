"""The bus on PostgreSQL: NOTIFY on its own connection, one transaction per hint, at most fifty a second.

NOTIFY takes a lock that all notifying transactions of the server share, and holds it until the commit is on disk. So no
write carries a NOTIFY: hints are merged, and sent after the commit on this connection. LISTEN does not work behind
PgBouncer in transaction mode; there, nodes find everything by polling once a second.

After a failover the connection may still be open to a server that no other node listens on. So with each hint, and
every few seconds without one, the bus asks the server whether it accepts writes. If not, it connects to another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from duetime.domain.hint import Hint
from duetime.postgres import TROUBLE, Servers

CHANNEL = "duetime_hints"
PAUSE_SECONDS = 0.02  # between two hints: hints in between are merged into the next
CALL_SECONDS = 2.0
CONNECT_SHARE = 0.8  # of CALL_SECONDS
RECONNECT_SECONDS = 1.0
CHECK_SECONDS = 5.0
IS_READ_ONLY = "current_setting('transaction_read_only') = 'on'"

log = structlog.get_logger()


class PostgresBus:
    def __init__(self, url: str) -> None:
        self._servers = Servers(url)
        self._sender = os.urandom(8).hex()  # a node receives its own hints too, and ignores them by this
        self._receive: Callable[[Hint], None] = lambda hint: None
        self._waiting: Hint | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, receive: Callable[[Hint], None]) -> None:
        self._receive = receive
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="bus")

    async def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CALL_SECONDS):
                    await self._task
            self._task = None

    def send(self, hint: Hint) -> None:
        self._waiting = hint if self._waiting is None else self._waiting.merged(hint)
        self._wake.set()

    async def _run(self) -> None:
        """Connects, serves, and reconnects. The store is authoritative: nothing waits for the bus while it is down."""
        trouble = ""
        while not self._stopping:
            connection: Any = None
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    connection = await self._servers.connect(CALL_SECONDS * CONNECT_SHARE, statement_cache_size=0)
                    await connection.add_listener(CHANNEL, self._hear)
                trouble = ""
                await self._serve(connection)
            except TROUBLE as error:
                if not trouble:
                    log.warning("no hints from other nodes: they are found once a second", error=_sentence(error))
                trouble = _sentence(error)
                await self._pause(RECONNECT_SECONDS)
            finally:
                if connection is not None:
                    connection.terminate()

    async def _serve(self, connection: Any) -> None:
        lost = asyncio.Event()

        def end(_: object) -> None:
            lost.set()
            self._wake.set()

        connection.add_termination_listener(end)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            if lost.is_set():
                raise ConnectionError("the connection was lost")
            hint, self._waiting = self._waiting, None
            async with asyncio.timeout(CALL_SECONDS):
                await self._tell(connection, hint)
            if self._stopping and self._waiting is None:
                return
            await self._pause(PAUSE_SECONDS)

    async def _tell(self, connection: Any, hint: Hint | None) -> None:
        if hint is None:
            is_read_only = await connection.fetchval(f"SELECT {IS_READ_ONLY}")
        else:
            payload = msgspec.json.encode((self._sender, hint)).decode()
            sql = f"SELECT {IS_READ_ONLY}, pg_notify($1, $2)"
            is_read_only = await connection.fetchval(sql, CHANNEL, payload)
        if is_read_only:
            raise ConnectionError("the server takes no writes: it is no longer the primary")

    async def _pause(self, seconds: float) -> None:
        if not self._stopping:
            await asyncio.sleep(seconds)

    def _hear(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        del connection, pid, channel
        try:
            sender, hint = msgspec.json.decode(payload, type=tuple[str, Hint])
        except msgspec.MsgspecError:
            return  # from another program or a newer version: the store is authoritative, so it can be ignored
        if sender != self._sender:
            self._receive(hint)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
