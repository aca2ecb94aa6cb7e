"""The SQL executor: one attempt is one statement, sent once, and has one outcome whatever the server does.

A SQL job runs with the rights of the connection's user at the server, and only those rights limit what it does. This
module limits where it may connect to, how long it runs and how much it returns. That is why an operator has to allow
SQL jobs.

An attempt's timeout covers everything: looking up the connection's URL, waiting for a free connection, connecting and
the statement. No statement outlives its attempt: one that took too long or was cancelled is stopped first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from duetime.domain.connection_urls import BadUrl, SqliteUrl, Url, parse_url
from duetime.domain.execution import ErrorType
from duetime.domain.payloads import SqlQuery
from duetime.domain.redirection import binding_problem
from duetime.executors.guard import BlockedTarget
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.names import check_literal
from duetime.executors.sql.own import OURS, OwnDatabase, check_folder, is_own
from duetime.executors.sql.postgres import PostgresStatements
from duetime.executors.sql.problems import Failed, blocked, timed_out
from duetime.executors.sql.sqlite import OFF, SqliteStatements
from duetime.executors.sql.sqlite_wire import Result
from duetime.ports.executor import Attempt, Outcome

FindConnection = Callable[[str, str], Awaitable[str | None]]


class SqlExecutor:
    """Runs `sql_query` jobs.

    `find`: returns the URL of a tenant's connection by name, in plain text; None if there is none. `own`: Duetime's own
    database, which no job may use. `rules`: the operator's rules. Raises BadFolder if the folder for SQLite files can't
    be used.
    """

    def __init__(self, find: FindConnection, own: OwnDatabase, limits: SqlLimits, rules: SqlRules) -> None:
        if rules.sqlite_folder:
            check_folder(own, rules.sqlite_folder)
        self._find = find
        self._rules = rules
        self._postgres = PostgresStatements(own, limits, rules)
        self.sqlite = SqliteStatements(limits, rules)

    async def start(self) -> None:
        """Does nothing: connections are opened by the first attempts."""

    async def stop(self) -> None:
        await self._postgres.pools.stop()
        await self.sqlite.link.stop()

    async def execute(self, attempt: Attempt[SqlQuery]) -> Outcome:
        clock = asyncio.get_running_loop().time
        begun_at = clock()
        try:
            result = await self._run(attempt, begun_at + attempt.timeout_seconds)
        except Failed as problem:
            attempt.log.write("log", f"{problem.message}\n")
            return Outcome(error_type=problem.error_type, error_message=problem.message)
        rows = "1 row" if result.row_count == 1 else f"{result.row_count} rows"
        attempt.log.write("log", f"{rows} in {(clock() - begun_at) * 1000:.0f} ms\n")
        return Outcome(response=result.text)

    async def _run(self, attempt: Attempt[SqlQuery], deadline: float) -> Result:
        query = attempt.payload
        if not self._rules.allowed:
            raise blocked("SQL jobs are not allowed on this node; its operator has to set ALLOW_SQL.")
        text = await self._url(attempt, query.connection, deadline)
        try:
            url = parse_url(text)
        except BadUrl as error:
            raise blocked(f"The connection {query.connection!r} can't be used. {error} Register it anew.") from None
        if (problem := binding_problem(query, url.shown)) is not None:
            raise blocked(problem)
        if isinstance(url, SqliteUrl):
            return await self.sqlite.run(attempt, query, url, deadline)
        table = await self._postgres.run(attempt, query, url, deadline)
        return Result(table.row_count, table.encode())

    async def _url(self, attempt: Attempt[SqlQuery], name: str, deadline: float) -> str:
        try:
            async with asyncio.timeout_at(deadline):
                url = await self._find(attempt.claim.tenant, name)
        except TimeoutError:
            raise timed_out(attempt.timeout_seconds, f"The connection {name!r} could not be looked up") from None
        except Exception as problem:  # any registry may raise any error, and its message may hold the URL
            raise Failed(
                ErrorType.INTERNAL_ERROR, f"The connection {name!r} could not be looked up: {type(problem).__name__}."
            ) from problem
        if url is None:
            raise blocked(f"There is no connection {name!r}: register it, or name another in the job.")
        return url


def refusal_of(url: Url, rules: SqlRules, own: OwnDatabase) -> str | None:
    """Returns why the URL may not be registered; None if it may. Each statement is checked again when it runs."""
    if not rules.allowed:
        return "SQL jobs are off here; the operator turns them on: ALLOW_SQL=true."
    if isinstance(url, SqliteUrl):
        return None if rules.sqlite_folder else OFF
    if is_own(own, url):
        return OURS
    try:
        check_literal(rules.servers, url.host, url.port)
    except BlockedTarget as problem:
        return str(problem)
    return None
