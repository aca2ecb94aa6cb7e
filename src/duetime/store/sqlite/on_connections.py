"""Commands on the databases that SQL jobs use."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.connections import check_connections
from duetime.domain.errors import no_connection
from duetime.store.sqlite.statements import Statements


class ConnectionCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def put_connection(self, command: c.PutConnection) -> None:
        if command.limit is not None:
            ((count, is_known),) = self._db.rows("count_connections", tenant=command.tenant, name=command.name)
            check_connections(count, bool(is_known), command.limit)
        self._db.run("put_connection", **asdict(command))
        self._db.note(command.audit)

    def remove_connection(self, command: c.RemoveConnection) -> None:
        if self._db.row("remove_connection", **asdict(command)) is None:
            raise no_connection(command.name)
        self._db.note(command.audit)

    def reencrypt_connection(self, command: c.ReencryptConnection) -> bool:
        return self._db.row("reencrypt_connection", **asdict(command)) is not None
