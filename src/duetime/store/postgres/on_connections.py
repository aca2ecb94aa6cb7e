"""Commands on the databases that SQL jobs use."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.connections import check_connections
from duetime.domain.errors import no_connection
from duetime.store.postgres.statements import Statements


class ConnectionCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def put_connection(self, command: c.PutConnection) -> None:
        if command.limit is not None:
            ((count, is_known),) = await self._db.rows("count_connections", tenant=command.tenant, name=command.name)
            check_connections(count, bool(is_known), command.limit)
        await self._db.run("put_connection", **asdict(command))
        self._db.note(command.audit)

    async def remove_connection(self, command: c.RemoveConnection) -> None:
        if await self._db.value("remove_connection", **asdict(command)) is None:
            raise no_connection(command.name)
        self._db.note(command.audit)

    async def reencrypt_connection(self, command: c.ReencryptConnection) -> bool:
        return await self._db.value("reencrypt_connection", **asdict(command)) is not None
