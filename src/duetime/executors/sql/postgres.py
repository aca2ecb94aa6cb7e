"""Runs one statement on a PostgreSQL server, in its own transaction.

A statement that returns no rows runs outside a transaction block, which VACUUM and CREATE INDEX CONCURRENTLY need. So
does CALL: its procedure may commit, and it returns at most one row. The rows of any other statement are read through a
portal in a transaction block: a few at a time as long as they are kept; the server skips the rest. So a statement
always runs to its end, even a SELECT of a function that does the work. Memory use does not depend on the size of the
result: the bytes that a server sends for a statement are counted, and a server that sends too many is disconnected.

Only the rights of its role at the server decide what a statement may do. COPY as a statement is refused because the
driver can't take part in it; inside a DO block or a function, the role's rights decide.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any, NamedTuple

import asyncpg
import msgspec

from duetime.domain.connection_urls import PostgresUrl
from duetime.domain.execution import ErrorType
from duetime.domain.payloads import SqlQuery
from duetime.executors.sql.connecting import connect
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from duetime.executors.sql.parameters import bind, misfit_of
from duetime.executors.sql.pools import Pools, Session
from duetime.executors.sql.problems import Failed, clean, flooded, lost, server_refused, timed_out, wrong
from duetime.executors.sql.table import Table
from duetime.executors.sql.types import name_of, read_array
from duetime.executors.sql.words import first_word
from duetime.executors.uncancelled import uncancelled
from duetime.ports.executor import Attempt, NotSent
from duetime.postgres import TROUBLE

_STOP_SECONDS = 5.0  # if a cancelled statement does not end within this time, its backend is terminated
_FIRST_ROWS = 2  # rows may be wide: start small, each fetch reads twice as many as the one before
_ALL_ROWS = 2**31 - 1
_COUNT = re.compile(r" (\d+)$")
_DOCUMENTS = ("json", "jsonb")
_LONGEST_DOCUMENTS = 4  # times the size limit of a stored result: most of a document may be whitespace
_UNSHOWABLE = "The result holds a value that can't be shown: cast it in the statement, as in column::text."


class _Prepared(NamedTuple):
    statement: asyncpg.PreparedStatement
    columns: tuple[int, ...]  # the types that the server announced
    arguments: list[Any]


class PostgresStatements:
    def __init__(self, own: OwnDatabase, limits: SqlLimits, rules: SqlRules) -> None:
        self.pools = Pools(own, limits, rules)
        self._limits = limits

    async def run(self, attempt: Attempt[SqlQuery], query: SqlQuery, url: PostgresUrl, deadline: float) -> Table:
        """Runs the statement and returns its result. Raises Failed, NotSent or CancelledError.

        When it returns or raises, the statement has ended on the server.
        """
        try:
            session = await self.pools.take(attempt.claim.tenant, url, deadline)
        except TimeoutError:
            raise timed_out(attempt.timeout_seconds, f"There was no connection to {url.shown}") from None
        work = asyncio.create_task(self._statement(attempt, query, session))
        try:
            await asyncio.wait({work}, timeout=deadline - asyncio.get_running_loop().time())
        finally:
            is_over = work.done()
            if not is_over:
                await uncancelled(_end(work, session, url))
                self.pools.throw_away(attempt.claim.tenant, url, session)
        if not is_over:
            raise timed_out(attempt.timeout_seconds, f"{url.shown} did not finish the statement, which was stopped:")
        return self._result(attempt, url, session, work)

    def _result(
        self, attempt: Attempt[SqlQuery], url: PostgresUrl, session: Session, work: asyncio.Task[Table]
    ) -> Table:
        problem = work.exception()
        if problem is not None and session.meter.problem is not None:
            self.pools.throw_away(attempt.claim.tenant, url, session)
            raise flooded(url.shown, session.meter) from None
        if problem is None or isinstance(problem, asyncpg.PostgresError | Failed | NotSent):
            self.pools.give_back(attempt.claim.tenant, url, session)
        else:
            self.pools.throw_away(attempt.claim.tenant, url, session)
        match problem:
            case asyncpg.QueryCanceledError() if "statement timeout" in str(problem):
                raise Failed(ErrorType.TIMEOUT, f"{url.shown} stopped the statement: its time was over.") from None
            case asyncpg.PostgresConnectionError() | asyncpg.AdminShutdownError() | asyncpg.CrashShutdownError():
                raise lost(url.shown) from None
            case asyncpg.PostgresError():
                raise server_refused(problem) from None
            case OSError() | BufferError() | asyncpg.InterfaceError() | asyncpg.InternalClientError():
                raise lost(url.shown) from None
        return work.result()

    async def _statement(self, attempt: Attempt[SqlQuery], query: SqlQuery, session: Session) -> Table:
        connection = session.connection

        def notice(_: Any, message: asyncpg.PostgresLogMessage) -> None:
            attempt.log.write("log", clean(f"{message.severity}: {message.message}\n"))

        connection.add_log_listener(notice)
        try:
            return await self._prepared(attempt, query, session)
        finally:
            # The connection may be closing already.
            with suppress(asyncpg.InterfaceError):
                connection.remove_log_listener(notice)

    async def _prepared(self, attempt: Attempt[SqlQuery], query: SqlQuery, session: Session) -> Table:
        connection = session.connection
        word = first_word(query.statement)
        if not word:
            raise wrong("The statement is empty.", "SQLSTATE 42601")
        if word == "COPY":
            raise wrong("COPY can't be used in a job: use INSERT … SELECT, or SELECT.", "SQLSTATE 0A000")
        try:
            statement = await connection.prepare(query.statement)
        except asyncpg.PostgresSyntaxError as problem:
            if "multiple commands" in str(problem):
                raise wrong("A job is one statement, this has several: make a job of each.", "SQLSTATE 42601") from None
            raise
        types, columns = session.meter.tally.parameters, session.meter.tally.columns
        prepared = _Prepared(statement, columns, bind(query.parameters, types))
        try:
            if statement.get_attributes() and word != "CALL":
                return await self._rows(attempt, session, prepared)
            return await self._plain(attempt, session, prepared)
        except asyncpg.DataError as problem:
            if getattr(problem, "severity", None) is None:  # raised by the driver: nothing was sent to the server
                raise misfit_of(problem, types) from None
            raise
        except (ValueError, OverflowError, asyncpg.UnsupportedClientFeatureError):
            raise wrong(_UNSHOWABLE, "SQLSTATE 0A000") from None

    async def _plain(self, attempt: Attempt[SqlQuery], session: Session, prepared: _Prepared) -> Table:
        attributes = prepared.statement.get_attributes()
        _ask(attempt)
        rows = await prepared.statement.fetch(*prepared.arguments)
        if session.connection.is_in_transaction():
            raise wrong("A job is one statement in a transaction of its own: it can't begin another.", "SQLSTATE 0A000")
        table = Table(self._limits, [attribute.name for attribute in attributes])
        for row in rows:
            table.add(_decoded(row, prepared.columns, self._limits))
        if not attributes:
            count = _COUNT.search(prepared.statement.get_statusmsg() or "")
            table.row_count = int(count[1]) if count else 0
        return table

    async def _rows(self, attempt: Attempt[SqlQuery], session: Session, prepared: _Prepared) -> Table:
        connection, attributes = session.connection, prepared.statement.get_attributes()
        table = Table(self._limits, [attribute.name for attribute in attributes])
        await connection.execute("BEGIN")
        cursor = await prepared.statement.cursor(*prepared.arguments)
        _ask(attempt)
        wanted, left = _FIRST_ROWS, self._limits.rows
        while left and not table.is_full:
            wanted = min(wanted, left)
            rows = await cursor.fetch(wanted)
            for row in rows:
                table.add(_decoded(row, prepared.columns, self._limits))
            if len(rows) < wanted:
                break
            left, wanted = left - wanted, wanted * 2
        else:
            while passed := await cursor.forward(_ALL_ROWS):
                table.skip(passed)
        await connection.execute("COMMIT")
        return table


def _ask(attempt: Attempt[SqlQuery]) -> None:
    if not attempt.may_send():
        raise NotSent


def _decoded(row: asyncpg.Record, columns: tuple[int, ...], limits: SqlLimits) -> list[Any]:
    """Returns the values of a row, with documents and arrays parsed.

    A document or array that is far too long to be kept stays text: as objects it could take thirty times its size.
    `columns`: the types that the server announced; the driver knows fewer.
    """
    values, longest = list(row), _LONGEST_DOCUMENTS * limits.bytes
    for place, type_ in enumerate(columns):
        value, name = values[place], name_of(type_)
        if not isinstance(value, str) or len(value) > longest:
            continue
        if name in _DOCUMENTS:
            with suppress(msgspec.DecodeError):  # a number that is out of range: the document stays text
                values[place] = msgspec.json.decode(value)
        elif name.endswith("[]"):
            values[place] = read_array(value, name.removesuffix("[]"))
    return values


async def _end(work: asyncio.Task[Table], session: Session, url: PostgresUrl) -> None:
    """Cancels the statement on the server. Terminates the backend if the connection does not respond after that."""
    work.cancel()
    await asyncio.wait({work})
    if not await _answers(session):
        await _end_backend(session, url)


async def _answers(session: Session) -> bool:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await session.connection.execute("ROLLBACK")
    except TROUBLE:
        return False
    return True


async def _end_backend(session: Session, url: PostgresUrl) -> None:
    """Terminates the backend over another connection: it ignored the cancel request, or its connection is broken."""
    with suppress(*TROUBLE, Failed):
        async with asyncio.timeout(_STOP_SECONDS):
            other = await connect(url, session.addresses, session.meter.sibling())
            try:
                waits = f", {int(_STOP_SECONDS * 1000)}" if other.get_server_version().major >= 14 else ""
                await other.execute(f"SELECT pg_terminate_backend({session.connection.get_server_pid()}{waits})")
            finally:
                other.terminate()
