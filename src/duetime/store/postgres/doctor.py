"""Measures a PostgreSQL database for `duetime doctor`. checks.py judges the values.

It writes nothing: each check is a read-only transaction with its own time limit, on one connection that is reopened
after it broke. It starts no store, so it also works on a database that no store can start on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import asyncpg

from duetime.domain import doctor
from duetime.domain.doctor import COUNTED, SHOWN, Check
from duetime.domain.ids import SHARDS
from duetime.domain.instants import DAY
from duetime.postgres import TROUBLE, Servers
from duetime.store.postgres import checks
from duetime.store.postgres.blocks import load_blocks
from duetime.store.postgres.connections import Address, close
from duetime.store.postgres.partitions import list_days
from duetime.store.postgres.schema import get_versions

CONNECT_SHARE = 0.8  # of the time for one check
SAMPLES = 5  # of the clock: the one with the shortest round trip counts
HOT_TABLES = ("timers", "open_runs", "counters", "commits", "leases", "shards", "shard_epochs", "jobs")


class PostgresDoctor:
    """`seconds`: how long one check may take; the server cancels it a little earlier."""

    def __init__(self, url: str, seconds: float, wall_clock: Callable[[], float] = time.time) -> None:
        self._address = Address(url)
        self._seconds = seconds
        self._wall_clock = wall_clock
        self._connection: Any = None
        self._is_gone = False
        self._sql = load_blocks("doctor.sql")

    async def stop(self) -> None:
        if self._connection is not None:
            await close(self._connection, self._seconds)

    async def connection(self) -> Check:
        begun = time.monotonic()
        try:
            await self._row("read_clock")  # a pooler responds even if its server does not
        except TROUBLE as error:
            return checks.unreachable(self._address.shown, doctor.reason(error))
        return checks.connection(self._address.shown, (time.monotonic() - begun) * 1000)

    async def server_version(self) -> Check:
        server = await self._row("read_server")
        return checks.server_version(server["version_number"], server["version"])

    async def writable(self) -> Check:
        server = await self._row("read_server")
        return checks.writable(server["is_standby"], server["is_read_only"])

    async def durability(self) -> Check:
        server = await self._row("read_server")
        return checks.durability({name: server[name] for name in ("fsync", "synchronous_commit", "full_page_writes")})

    async def autovacuum(self) -> Check:
        server = await self._row("read_server")
        return checks.autovacuum(server["is_vacuumed"], server["is_counting"])

    async def clock_skew(self) -> Check:
        async def sample(connection: Any) -> tuple[float, float]:
            sent_at, begun = self._wall_clock() * 1000, time.monotonic()
            there = float(await connection.fetchval(self._sql["read_clock"].sql))
            round_trip = (time.monotonic() - begun) * 1000
            return round_trip, there - (sent_at + round_trip / 2)

        async def best(connection: Any) -> tuple[float, float]:
            return min([await sample(connection) for _ in range(SAMPLES)])

        round_trip, skew = await self._look(best)
        return checks.clock_skew(skew, round_trip)

    async def connections(self, each: int, nodes: int) -> Check:
        found = await self._row("read_connections")
        return checks.connections(found["room"], found["in_use"], each, nodes, self._address.is_pooled)

    async def schema(self) -> Check:
        return doctor.schema(*await self._look(get_versions))

    async def due_timers(self) -> Check:
        found = await self._row("count_due_timers", shards=range(SHARDS), most=COUNTED + 1)
        return doctor.due_timers(found["count"], found["late"])

    async def waiting_executions(self) -> Check:
        found = await self._row("count_waiting_executions", most=COUNTED + 1)
        return doctor.waiting_executions(found["count"], found["late"])

    async def waiting_functions(self) -> Check:
        found = await self._row("count_waiting_functions", most=COUNTED + 1)
        rows = await self._rows("list_missing_functions", most=COUNTED + 1, named=SHOWN + 1) if found["count"] else []
        missing = [row["function"] for row in rows]
        return doctor.waiting_functions(found["count"], found["late"], found["workers"], missing)

    async def lost_executions(self, alive: Collection[int] | None, reconcile_seconds: float) -> Check:
        """`alive`: the nodes that the registry shows as alive; None if the registry can't be read."""
        found = await self._row("count_lost_executions", alive=None if alive is None else list(alive))
        return doctor.lost_executions(found["count"], found["since"], reconcile_seconds)

    async def fenced(self) -> dict[int, tuple[int, int]]:
        """Returns {shard: (epoch, node)}."""
        return {row["shard"]: (row["epoch"], row["node"]) for row in await self._rows("list_fenced")}

    async def history(self, keep_seconds: float, most: int) -> Check:
        found = await self._row("read_history")
        days = await self._look(list_days)
        oldest = min(days) * DAY if days else None
        return checks.history(found["count"], found["size_bytes"], oldest, found["now"], keep_seconds, most)

    async def strays(self) -> Check:
        found = await self._row("count_strays", most=COUNTED + 1)
        return checks.strays(found["executions"], found["attempts"])

    async def dead_rows(self) -> Check:
        rows = await self._rows("list_dead_rows", tables=HOT_TABLES)
        return checks.dead_rows([(row["name"], row["live"], row["dead"]) for row in rows])

    async def _row(self, block: str, **values: Any) -> Any:
        return (await self._rows(block, **values))[0]

    async def _rows(self, block: str, **values: Any) -> list[Any]:
        statement = self._sql[block]

        async def fetch(connection: Any) -> list[Any]:
            return list(await connection.fetch(statement.sql, *statement.arguments(values)))

        rows: list[Any] = await self._look(fetch)
        return rows

    async def _look(self, read: Callable[[Any], Any]) -> Any:
        connection = await self._connected()
        limit = max(1, int(self._seconds * 900))
        try:
            async with connection.transaction(readonly=True):
                # Use indexes, as the engine does: without statistics the planner would scan whole tables.
                await connection.execute(f"SET LOCAL statement_timeout = '{limit}ms'; SET LOCAL enable_seqscan = off")
                return await read(connection)
        except asyncpg.PostgresError:
            raise
        except BaseException:
            connection.terminate()  # its state is unknown
            raise

    async def _connected(self) -> Any:
        if self._is_gone:  # the next checks need not wait for a timeout each
            raise ConnectionError("there is no connection to the database")
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await Servers(self._address.url).connect(
                    self._seconds * CONNECT_SHARE, statement_cache_size=0
                )
            except Exception:
                self._is_gone = True
                raise
        return self._connection
