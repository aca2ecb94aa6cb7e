"""The registry on PostgreSQL. It has its own connection, so that a heartbeat never waits behind another query.

postgres.sql holds the rules, and why they are correct. This file owns the connection: it opens it when needed, drops it
at any failure, and limits the time of every call. It never repeats a call: if a response was lost, only the next view
shows what the call did.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.resources import files
from typing import Any

import asyncpg
import msgspec

from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.lease import View
from duetime.postgres import TROUBLE, Servers
from duetime.settings.table import DEFAULTS

CALL_SHARE = 0.3  # of the ttl: a call that hangs leaves time for another before the lease expires
FIRST_PAUSE_SECONDS = 0.05  # between attempts to connect
LONGEST_PAUSE_SECONDS = 0.5
START_SECONDS = 30.0  # the schema is created under a lock that another node may hold

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_, *_parts = _NAME.split(files(__package__).joinpath("postgres.sql").read_text(encoding="utf-8"))
SQL = {name: sql.strip() for name, sql in zip(_parts[::2], _parts[1::2], strict=True)}


class PostgresRegistry:
    def __init__(
        self, url: str, ttl_seconds: float = DEFAULTS.node_lease_seconds, call_seconds: float | None = None
    ) -> None:
        self.ttl_seconds = ttl_seconds
        self._servers = Servers(url)
        self._call_seconds = ttl_seconds * CALL_SHARE if call_seconds is None else call_seconds
        self._connection: Any = None
        self._one_at_a_time = asyncio.Lock()
        self._trouble: Exception | None = None  # of the last attempt to connect

    async def start(self) -> None:
        await self._use(lambda connection: connection.execute(SQL["schema"]), START_SECONDS)
        shards = len((await self.view()).shards)
        if shards != SHARDS:
            raise RuntimeError(f"the table `shards` has {shards} rows, not {SHARDS}: is this Duetime's database?")

    async def stop(self) -> None:
        async with self._one_at_a_time:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=self._call_seconds)
                except TROUBLE:
                    connection.terminate()

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        if not await self._ask("join", node, name, sorted(roles), self.ttl_seconds):
            raise StaleWrite(f"node {node} can't join as {name}: its lease has ended, or a newer node came since")
        return await self.renew(node)

    async def renew(self, node: int) -> View:
        rows = await self._ask("renew", node, self.ttl_seconds)
        if not rows:
            raise StaleWrite(f"the lease of node {node} has expired or ended: start anew")
        return _decode(rows)

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        return dict(sorted(map(tuple, await self._ask("take", node, list(shards)))))

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        await self._ask("release", node, list(shards), list(shards.values()))

    async def leave(self, node: int) -> None:
        await self._ask("leave", node)

    async def view(self) -> View:
        return _decode(await self._ask("view"))

    async def _ask(self, statement: str, *arguments: object) -> list[Any]:
        """Runs one statement in its own transaction."""
        return list(await self._use(lambda connection: connection.fetch(SQL[statement], *arguments)))

    async def _use(self, deed: Callable[[Any], Awaitable[Any]], seconds: float | None = None) -> Any:
        """Calls `deed` with the connection, within `seconds`. After an error, its effect is unknown."""
        seconds = self._call_seconds if seconds is None else seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            raise TimeoutError(f"the registry was busy with another call for {seconds:g} s") from None
        expiry: asyncio.TimerHandle | None = None
        try:
            connection = await self._connected(deadline, seconds)
            # Terminate instead of cancel: asyncpg cancels through a second connection, and a server that does not
            # respond on this connection may not respond on that one either.
            expiry = loop.call_at(deadline, connection.terminate)
            return await deed(connection)
        except BaseException as error:
            self._drop()
            if expiry is not None and isinstance(error, Exception) and loop.time() >= deadline:
                raise TimeoutError(f"no answer from the registry's database within {seconds:g} s") from error
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
            self._one_at_a_time.release()

    async def _connected(self, deadline: float, seconds: float) -> Any:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._connection, self._trouble = None, None
        try:
            async with asyncio.timeout_at(deadline):
                self._connection = await self._connect(seconds)
        except TimeoutError:
            why = f": {self._trouble}" if self._trouble else ""
            raise TimeoutError(f"no connection to the registry's database within {seconds:g} s{why}") from None
        return self._connection

    async def _connect(self, seconds: float) -> Any:
        """Connects, with retries until it succeeds or the caller's timeout cancels it."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                # No prepared statements: behind PgBouncer the next call may use another server connection.
                return await self._servers.connect(seconds, statement_cache_size=0)
            except TROUBLE as error:
                self._trouble = error
            await asyncio.sleep(random.uniform(pause / 2, pause))  # jitter: all nodes reconnect at once
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _decode(rows: list[Any]) -> View:
    return msgspec.json.decode(rows[0][0], type=View)


async def read_view(url: str, seconds: float) -> View | None:
    """Returns the current view of the cluster, within `seconds`; None if the registry has no tables yet."""
    registry = PostgresRegistry(url, call_seconds=seconds)
    try:
        return await registry.view()
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await registry.stop()
