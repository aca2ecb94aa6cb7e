"""Partitions history by UTC day: executions and attempts have one partition a day, created ahead, dropped as a whole.

Rows of a day without a partition (an instant missed long ago, a wrong clock) go to the partition `rest`.
A partition is created as a separate table and then attached, which does not block other transactions. CREATE TABLE …
PARTITION OF would lock the parent.

To attach a day, PostgreSQL checks that `rest` has no row of that day: it reads all of `rest` under an exclusive lock.
If `rest` is large, a CHECK constraint that excludes the day is added and validated first, without that lock. Then
nothing is read under the lock. Until then `rest` refuses rows of that day, so this is for days that have not begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import asyncpg

from duetime.domain import commands as c
from duetime.domain.instants import DAY
from duetime.store.postgres.schema import LOCK
from duetime.store.postgres.statements import Statements

AHEAD = 1  # days that have a partition before they begin
BEHIND = 1  # past days for which a partition is created on demand
LONGEST_WAIT = "100ms"  # for the lock to create or drop: rather try again later than block other writers
SECONDS_BETWEEN_TRIES = 5.0
LONGEST_CHECK = "2s"  # of a large `rest`, without its lock; callers of this write wait for the check
SCANNED_BYTES = 32 * 1024 * 1024  # of `rest` that may be read under the lock: takes some milliseconds
# Each execution is updated once, when it ends: the fillfactor leaves room on the same page for that (HOT update).
_PARENTS = {"executions": "fillfactor = 42", "attempts": "fillfactor = 100"}


def partition_of(parent: str, day: int) -> str:
    return f"{parent}_{datetime.fromtimestamp(day * 86_400, UTC):%Y%m%d}"


def days_of(commands: Iterable[c.Command]) -> set[int]:
    """Returns the days that these commands need; only days near the commands' own `now`."""
    days: set[int] = set()
    for command in commands:
        if isinstance(command, (c.Fire, c.AddExecution, c.Redrive, c.StartNode)):  # StartNode: no fire should wait
            today = command.now // DAY
            days.update(range(today, today + AHEAD + 1))
            if isinstance(command, c.Fire):
                wanted = {execution.scheduled_at // DAY for execution in command.executions}
                days.update(day for day in wanted if today - BEHIND <= day <= today)
    return days


class Days:
    """The days whose partitions are known to exist. Creates those that are missing."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._not_before = 0.0  # of the loop's clock

    async def prepare(self, connection: asyncpg.Connection, begin: str, commands: Sequence[c.Command]) -> None:
        """Creates missing partitions. After a failure, rows go to `rest` until the next try."""
        missing = days_of(commands) - self._known
        clock = asyncio.get_running_loop().time
        if not missing or clock() < self._not_before:
            return
        self._not_before = clock() + SECONDS_BETWEEN_TRIES
        for day in sorted(missing):
            await make_day(connection, begin, day, is_ahead=all(command_day(command) < day for command in commands))
            self._known.add(day)
        self._not_before = 0.0


def command_day(command: c.Command) -> int:
    """Returns the day of the command's `now`; day 0 for a command without one."""
    return int(getattr(command, "now", 0)) // DAY


async def make_day(connection: asyncpg.Connection, begin: str, day: int, *, is_ahead: bool = False) -> bool:
    """Returns False if `rest` has rows of that day: the day stays in `rest`. `is_ahead`: it has not begun."""
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", partition_of("attempts", day)):
        return True
    if is_ahead and await _is_rest_large(connection) and not await _prove_absent(connection, begin, day):
        return False
    await connection.execute(begin)
    try:
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK}); SET LOCAL lock_timeout = '{LONGEST_WAIT}'")
        for parent, storage in _PARENTS.items():
            name = partition_of(parent, day)
            if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", name):
                continue
            await connection.execute(
                f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS) WITH ({storage});"
                f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({day * DAY}) TO ({(day + 1) * DAY});"
                f"ALTER TABLE {parent}_rest DROP CONSTRAINT IF EXISTS {_proof_of(day)}"
            )
        await connection.execute("COMMIT")
    except asyncpg.CheckViolationError:
        await connection.execute("ROLLBACK")
        return False
    return True


def _proof_of(day: int) -> str:
    return partition_of("without", day)


async def _is_rest_large(connection: asyncpg.Connection) -> bool:
    sizes = " + ".join(f"pg_relation_size('{parent}_rest')" for parent in _PARENTS)
    return bool(await connection.fetchval(f"SELECT {sizes} > $1", SCANNED_BYTES))


async def _prove_absent(connection: asyncpg.Connection, begin: str, day: int) -> bool:
    """Adds a validated constraint to `rest` that excludes that day. Returns False if `rest` has rows of it."""
    wait, proof = f"SET LOCAL lock_timeout = '{LONGEST_WAIT}'", _proof_of(day)
    tables = [f"{parent}_rest" for parent in _PARENTS]
    drops = ";".join(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {proof}" for table in tables)
    absent = f"CHECK (scheduled_at < {day * DAY} OR scheduled_at >= {(day + 1) * DAY})"
    adds = ";".join(f"ALTER TABLE {table} ADD CONSTRAINT {proof} {absent} NOT VALID" for table in tables)
    await connection.execute(f"{begin};{wait};{drops};{adds};COMMIT")
    try:
        for table in tables:
            await connection.execute(
                f"{begin};{wait};SET LOCAL statement_timeout = '{LONGEST_CHECK}';"
                f"ALTER TABLE {table} VALIDATE CONSTRAINT {proof};COMMIT"
            )
    except asyncpg.PostgresError as error:
        await connection.execute("ROLLBACK")
        await connection.execute(f"{begin};{wait};{drops};COMMIT")
        if isinstance(error, asyncpg.CheckViolationError):
            return False
        raise
    return True


async def list_days(connection: asyncpg.Connection) -> list[int]:
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'executions'::regclass AND c.relname ~ '_[0-9]{8}$' ORDER BY 1"
    )
    return [int(datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).timestamp()) // 86_400 for (name,) in rows]


async def drop_day(db: Statements, before: int) -> int:
    """Drops the oldest day before `before` without open executions. Returns how many executions it had.

    Runs in the transaction of the Prune command, which updates the totals as well. Drops one day at a time, because the
    table is locked until the commit. The short lock timeout is for the drop only; later statements have the usual one.
    """
    dropped, usual_wait = 0, await db.connection.fetchval("SELECT current_setting('lock_timeout')")
    for day in [day for day in await list_days(db.connection) if (day + 1) * DAY <= before]:
        await db.connection.execute(f"SAVEPOINT day; SET LOCAL lock_timeout = '{LONGEST_WAIT}'")
        try:
            dropped += await _drop(db, day)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await db.connection.execute("ROLLBACK TO SAVEPOINT day; RELEASE SAVEPOINT day")
            break
        await db.connection.execute(f"RELEASE SAVEPOINT day; SET LOCAL lock_timeout = '{usual_wait}'")
        if dropped:
            break
    return dropped


async def _drop(db: Statements, day: int) -> int:
    names = [partition_of(parent, day) for parent in _PARENTS]
    # Under the lock no transaction can add to the day, so the check for open executions is reliable.
    await db.connection.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")
    if await db.value("is_open_between", since=day * DAY, before=(day + 1) * DAY):
        return 0
    for name in names:
        await db.connection.execute(f"DROP TABLE {name}")
    await db.run("drop_progress_of_day", since=day * DAY, before=(day + 1) * DAY)
    return sum(value for (value,) in await db.rows("drop_counters_of_day", day=day))
