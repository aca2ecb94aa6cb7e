"""Commands on the log of events: append a page, prune."""

from __future__ import annotations

from duetime.domain import commands as c
from duetime.store.sqlite.statements import Statements, page


class EventCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def add_events(self, command: c.AddEvents) -> int | None:
        values = {"writer": command.writer, "sequence": command.sequence, "now": command.now}
        if self._db.row("add_event_writer", **values) is None:
            return None
        number = int(self._db.value("next_event_page", now=command.now))
        self._db.run("add_events", number=number, rows=page(command.rows))
        return number

    def prune_events(self, command: c.PruneEvents) -> int:
        self._db.run("prune_event_writers", before=command.before)
        found = self._db.row(
            "list_old_events", before=command.before, most_bytes=command.most_bytes, limit=command.limit
        )
        ids, number = found or (None, None)
        if ids is None:
            return 0
        self._db.run("note_event_prune", number=number)
        return self._db.remove("prune_events", ids=ids)
