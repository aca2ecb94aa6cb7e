"""Commands on alert channels."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.channels import check_channels
from duetime.domain.errors import no_channel
from duetime.store.sqlite.statements import Statements


class ChannelCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def put_channel(self, command: c.PutChannel) -> None:
        if command.limit is not None:
            ((count, is_known),) = self._db.rows("count_channels", tenant=command.tenant, name=command.name)
            check_channels(count, bool(is_known), command.limit)
        self._db.run("put_channel", **asdict(command))
        self._db.note(command.audit)

    def remove_channel(self, command: c.RemoveChannel) -> None:
        if self._db.row("remove_channel", **asdict(command)) is None:
            raise no_channel(command.name)
        self._db.note(command.audit)

    def reencrypt_channel(self, command: c.ReencryptChannel) -> bool:
        return self._db.row("reencrypt_channel", **asdict(command)) is not None
