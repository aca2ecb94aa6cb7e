"""One writer connection: one transaction at a time, retried where that is safe, and never applied twice.

If the connection breaks during COMMIT, it is unknown whether the transaction was committed. Each writer connection has
a row in `commits`, which its transaction writes last. The next connection waits until no transaction locks that row,
and reads it. If the row names the batch, the kept results are valid; if not, nothing was written, and the batch is
applied again.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from duetime.domain import audit
from duetime.domain import commands as c
from duetime.domain.capacity import UNBOUNDED, Capacity, Load
from duetime.domain.errors import Overloaded
from duetime.domain.limits import MICRO
from duetime.postgres import TROUBLE
from duetime.process.crash import crash_point
from duetime.store.blocks import COMMANDS
from duetime.store.postgres import faults
from duetime.store.postgres.apply import Applier, adding_tenants
from duetime.store.postgres.blocks import load_blocks
from duetime.store.postgres.connections import Connector, close
from duetime.store.postgres.partitions import Days
from duetime.store.postgres.statements import Statements

MOST_TRIES = 8  # of a batch with deadlocks; they are rare, because locks are taken in one order
PAUSE_IN_DOUBT_SECONDS = 0.25
# The statements of a burst. A new connection runs them once on empty pages, so that they are parsed and planned before
# executions are due, not at that moment.
OF_A_BURST = ("get_node", "list_epochs", "fire_timers", "fire_executions", "finish_timers", "end_executions")

Batch = tuple[Sequence[c.Command], "asyncio.Future[list[Any]]"]
# The engine's own commands: no request waits for them, and their outcome must not stay unknown.
ENGINE = (
    c.Fire, c.ClaimExecutions, c.Finish, c.Release, c.FenceShards, c.StartNode, c.StopNode, c.FenceNodes, c.FenceWorkers
)  # fmt: skip


class WriterConnection:
    def __init__(
        self, connector: Connector, days: Days, timeout_seconds: float, slot: int,
        report: Callable[[str | None], None], capacity: Capacity,
    ) -> None:  # fmt: skip
        self._connector = connector
        self._days = days
        self._timeout = timeout_seconds
        self._slot = slot
        self._writer = uuid.uuid4()
        self._batch = 0
        self._connection: asyncpg.Connection | None = None
        self._is_committing = False
        self._results: list[Any] = []
        self._sql = load_blocks(*COMMANDS)
        self._capacity = capacity
        self._is_near = capacity != UNBOUNDED  # near a capacity limit, as far as is known
        self._report = report  # called after each write: None, or the error
        self.on_commit: Callable[[int, float], None] = lambda commands, seconds: None  # called after each commit
        self.on_read_only: Callable[[], None] = lambda: None  # the server is a standby, or has become one
        self.is_stopping = False

    async def open(self) -> None:
        """Connects ahead of the first write. If that fails, the next write reports the error."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._connect()
        except Exception as error:  # noqa: BLE001 (the next write reports the error)
            self._discard()
            self._note(error)

    async def close(self) -> None:
        if self._connection is not None:
            await close(self._connection, self._timeout)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Applies and commits the batches. Each batch's future gets its results, or an error."""
        for number in range(MOST_TRIES):
            batches = [batch for batch in batches if not batch[1].done()] if number else batches
            if not batches:
                return
            try:
                async with asyncio.timeout(self._timeout):
                    await self._transact([command for commands, _ in batches for command in commands])
            except Exception as error:  # noqa: BLE001 (answered to every caller, or tried again)
                self._note(error)
                if self._is_committing and await self._was_committed(batches):
                    self._answer(batches)
                    return
                if await self._is_worth_another(error, is_first=number == 0):
                    continue
                _refuse(batches, error)
                return
            self._answer(batches)
            await self._renew()
            return
        _refuse(batches, Overloaded("other writes are in the way, nothing was changed; try again"))

    async def _is_worth_another(self, error: Exception, *, is_first: bool) -> bool:
        """Nothing was committed. Returns whether the same batch may be applied again at once."""
        if self._is_committing:
            self._is_committing = False
            return True
        if isinstance(error, faults.AGAIN):
            await self._roll_back()
            await asyncio.sleep(random.random() * 0.02)
            return True
        if isinstance(error, asyncpg.PostgresError) and not faults.is_lost(error):
            await self._roll_back()
            return False
        was_open = self._connection is not None
        self._discard()
        return is_first and was_open and faults.is_lost(error)  # the server may be available again

    async def _transact(self, commands: Sequence[c.Command], *, limits_in_turns: bool = False) -> None:
        self._is_committing = False
        began = time.perf_counter()
        connection = await self._connect()
        await self._prepare_days(connection, commands)
        await connection.execute(self._connector.begin)
        wants_room = any(map(adding_tenants, commands))
        takes_turns = self._is_near and wants_room
        applier = Applier(connection, self._connector.begin, self._capacity)
        self._results, is_good = await applier.apply(commands, takes_turns=takes_turns, limits_in_turns=limits_in_turns)
        if not is_good or (_is_idle(commands, self._results) and not applier.statements.moved):
            await connection.execute("ROLLBACK")
            return
        crash_point("before_commit")
        is_enough = await self._end_batch(applier.statements)
        is_tight = self._is_near and wants_room and not takes_turns and any(applier.statements.added)
        if is_tight or not is_enough:
            await connection.execute("ROLLBACK")
            await self._transact(commands, limits_in_turns=limits_in_turns or not is_enough)  # with locks, this time
            return
        self._is_committing = True
        status = await connection.execute("COMMIT")
        if status != "COMMIT":
            raise asyncpg.InterfaceError(f"the server answered COMMIT with {status}")
        self._is_committing = False
        self.on_commit(len(commands), time.perf_counter() - began)
        crash_point("after_commit")

    async def _end_batch(self, statements: Statements) -> bool:
        """Runs the last statement. Returns False if a quota is too low, or is used for the first time."""
        self._batch += 1
        pending = statements.pending
        moved = [(*key, delta) for key, delta in sorted(pending.moved.items()) if delta]
        tenants, names, days, deltas = zip(*moved, strict=True) if moved else ((), (), (), ())
        jobs = [(*key, delta) for key, delta in sorted(pending.jobs.items()) if delta]
        job_tenants, job_statuses, job_deltas = zip(*jobs, strict=True) if jobs else ((), (), ())
        values: dict[str, Any] = {
            "tenants": tenants, "names": names, "days": days, "deltas": deltas, "slot": self._slot,
            "job_tenants": job_tenants, "job_statuses": job_statuses, "job_deltas": job_deltas,
            "writer": self._writer, "batch": self._batch,
        }  # fmt: skip
        if not (pending.entries or pending.full_at or pending.takes or any(statements.added)):
            await statements.run("end_batch", **values)
            return True
        texts = [entry.text for entry in pending.entries]
        row = await statements.row(
            "end_batch_of_people", **values,
            limit_tenants=[key[0] for key in pending.full_at], limit_users=[key[1] for key in pending.full_at],
            limit_names=[key[2] for key in pending.full_at], full_ats=list(pending.full_at.values()),
            take_tenants=[quota.tenant for quota in pending.takes],
            take_users=[quota.user_id for quota in pending.takes],
            take_names=[quota.limit.name for quota in pending.takes],
            take_nows=[now * MICRO for now, _ in pending.takes.values()],
            take_counts=[count for _, count in pending.takes.values()],
            emissions=[quota.limit.emission for quota in pending.takes],
            buckets=[quota.limit.bucket for quota in pending.takes],
            first=audit.FIRST_LINK, digest=audit.digest(texts) if texts else None,
            entry_tenants=[entry.tenant for entry in pending.entries],
            resources=[entry.resource for entry in pending.entries], entries=texts,
        )  # fmt: skip
        assert row is not None
        taken, *load = row
        self._is_near = self._capacity.is_near(Load(*load).plus(*statements.added))
        return bool(taken == len(pending.takes))

    async def _prepare_days(self, connection: asyncpg.Connection, commands: Sequence[c.Command]) -> None:
        try:
            await self._days.prepare(connection, self._connector.begin, commands)
        except asyncpg.PostgresError as error:
            if faults.is_lost(error):
                raise
            await connection.execute("ROLLBACK")  # rows without a partition of their day go to `rest`

    async def _was_committed(self, batches: Sequence[Batch]) -> bool:
        """Finds out whether a COMMIT without a reply succeeded. Tries until that is known, or no caller waits."""
        self._discard()
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._last_batch() == self._batch
            except Exception as error:  # noqa: BLE001 (the database is still away)
                self._discard()
                self._note(error)
            doubt = Overloaded("the connection broke during this write; it may be stored: check before you try again")
            waiting = [batch for batch in batches if not batch[1].done()]
            people = [batch for batch in waiting if self.is_stopping or not isinstance(batch[0][0], ENGINE)]
            _refuse(people, doubt)
            if len(people) == len(waiting):
                return False
            await asyncio.sleep(PAUSE_IN_DOUBT_SECONDS)

    async def _last_batch(self) -> int:
        connection = await self._connect()
        await connection.execute(self._connector.begin)
        block = self._sql["get_last_batch"]
        found = await connection.fetchval(block.sql, *block.arguments({"writer": self._writer}))
        await connection.execute("COMMIT")
        return int(found)

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connector.open()
            if not self._connector.is_pooled:  # a pooler may use another connection later
                for block in (self._sql[name] for name in OF_A_BURST):
                    await self._connection.fetch(block.sql, *block.nothing())
        return self._connection

    async def _renew(self) -> None:
        """Replaces a connection that is too old, between two batches, so that no due execution waits for it."""
        connection = self._connection
        if connection is not None and not self.is_stopping and self._connector.is_old(connection):
            self._connection = None
            await close(connection, self._timeout)
            await self.open()

    async def _roll_back(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await (await self._connect()).execute("ROLLBACK")
        except TROUBLE:
            self._discard()

    def _discard(self) -> None:
        """Drops the connection, because its state is unknown."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _note(self, error: Exception) -> None:
        self._report(f"{type(error).__name__}: {error}")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self.on_read_only()

    def _answer(self, batches: Sequence[Batch]) -> None:
        self._report(None)
        self._is_committing = False
        position = 0
        for commands, future in batches:
            if not future.done():  # its caller may have been cancelled; what it wrote stays written
                future.set_result(self._results[position : position + len(commands)])
            position += len(commands)


def _is_idle(commands: Sequence[c.Command], results: Sequence[Any]) -> bool:
    """Returns whether all are claims that found nothing: no commit is needed, and no wait for the disk."""
    return all(
        isinstance(command, c.ClaimExecutions) and result == []
        for command, result in zip(commands, results, strict=True)
    )


def _refuse(batches: Sequence[Batch], error: Exception) -> None:
    unavailable = faults.unavailable(error, "nothing was changed")
    for _, future in batches:
        if not future.done():
            future.set_exception(unavailable)
