"""`duetime doctor`: runs the checks of the store and of the registry. Each has a time limit, and none stops another.

Each backend reads its own figures (`doctor.py` there). `checks.py` beside it and `domain.doctor` judge them. Nothing
here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from duetime.domain import doctor
from duetime.domain.doctor import Check, Status, not_done, reason
from duetime.domain.lease import View
from duetime.private_files import permissions
from duetime.registry.postgres import read_view
from duetime.settings.table import Settings
from duetime.store.postgres.connections import Address
from duetime.store.postgres.doctor import PostgresDoctor
from duetime.store.sqlite.doctor import SqliteDoctor

CHECK_SECONDS = 5.0
INTEGRITY_SECONDS = 60.0  # reads all of a file

Look = tuple[str, Callable[[], Awaitable[Check]]]


async def run_checks(settings: Settings) -> list[Check]:
    return await (_check_postgres(settings) if settings.database_url else _check_sqlite(settings))


async def _check_postgres(settings: Settings) -> list[Check]:
    url, history = settings.database_url, (settings.execution_history_retention, settings.execution_history_limit)
    database = PostgresDoctor(url, CHECK_SECONDS)
    try:
        connection = await _look("connection", database.connection)
        is_reached = connection.status is not Status.PROBLEM
        cluster = await _read_cluster(Address(url).url) if is_reached else _Cluster(None)
        server: list[Look] = [
            ("server version", database.server_version),
            ("writable", database.writable),
            ("durability", database.durability),
            ("autovacuum", database.autovacuum),
            ("clock skew", database.clock_skew),
            ("connections", partial(database.connections, settings.db_max_open_conns, len(cluster.alive or ()))),
            ("schema", database.schema),
        ]
        tables: list[Look] = [
            ("nodes", cluster.nodes),
            ("shards", cluster.shards),
            ("epochs", partial(cluster.epochs, database)),
            ("due timers", database.due_timers),
            ("waiting executions", database.waiting_executions),
            ("waiting functions", database.waiting_functions),
            ("lost executions", partial(database.lost_executions, cluster.alive, settings.reconcile_interval)),
            ("history", partial(database.history, *history)),
            ("stray history", database.strays),
            ("dead rows", database.dead_rows),
        ]
        if not is_reached:
            why, advice = "there is no connection to the database", "See `connection`."
            return [connection, *(not_done(name, why, advice) for name, _ in [*server, *tables])]
        return [connection, *await _all(server, tables)]
    finally:
        await database.stop()


async def _check_sqlite(settings: Settings) -> list[Check]:
    database = SqliteDoctor(settings.data, CHECK_SECONDS, INTEGRITY_SECONDS)
    looks: dict[str, Callable[[], Check]] = {
        "file": database.file,
        "integrity": database.integrity,
        "journal mode": database.journal_mode,
        "free space": database.free_space,
        "permissions": partial(permissions, settings.data),
        "node": database.running,
        "write-ahead log": database.wal_size,
        "schema": database.schema,
    }
    tables: dict[str, Callable[[], Check]] = {
        "due timers": database.due_timers,
        "waiting executions": database.waiting_executions,
        "waiting functions": database.waiting_functions,
        "lost executions": partial(database.lost_executions, settings.reconcile_interval),
    }
    return await _all(_in_threads(looks), _in_threads(tables))


def _in_threads(looks: Mapping[str, Callable[[], Check]]) -> list[Look]:
    return [(name, partial(asyncio.to_thread, look)) for name, look in looks.items()]


async def _all(first: Sequence[Look], tables: Sequence[Look]) -> list[Check]:
    """Runs the checks one by one, to keep the load low. Tables are checked only if this version can read the schema."""
    checks = [await _look(name, look) for name, look in first]
    if any(check.check == "schema" and check.status is Status.PROBLEM for check in checks):
        why, advice = "this Duetime can't read the schema", "See `schema`."
        return checks + [not_done(name, why, advice) for name, _ in tables]
    return checks + [await _look(name, look) for name, look in tables]


async def _look(name: str, look: Callable[[], Awaitable[Check]]) -> Check:
    try:
        async with asyncio.timeout(INTEGRITY_SECONDS if name == "integrity" else CHECK_SECONDS):
            return await look()
    except Exception as error:  # noqa: BLE001 (a failed check is a finding, and does not stop the others)
        return not_done(name, reason(error))


class _Cluster:
    """The registry's view of the cluster, read once; or the reason why it can't be read."""

    def __init__(self, view: View | None, trouble: str = "") -> None:
        self._view = view
        self._trouble = trouble
        self.alive = None if view is None else [member.node for member in view.members]

    async def nodes(self) -> Check:
        return doctor.nodes(self._known())

    async def shards(self) -> Check:
        return doctor.shards(self._known())

    async def epochs(self, database: PostgresDoctor) -> Check:
        return doctor.epochs(self._known(), await database.fenced())

    def _known(self) -> View:
        if self._view is None:
            raise LookupError(self._trouble)
        return self._view


async def _read_cluster(url: str) -> _Cluster:
    try:
        view = await read_view(url, CHECK_SECONDS)
    except Exception as error:  # noqa: BLE001 (as above)
        return _Cluster(None, reason(error))
    return _Cluster(view, "the registry has no tables yet; run `duetime migrate`")
