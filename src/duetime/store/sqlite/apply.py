"""Applies commands, each in its own savepoint. Runs on the writer's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import apsw

from duetime.domain import commands as c
from duetime.domain.capacity import Capacity
from duetime.domain.errors import DuetimeError, unwritable
from duetime.domain.on_finish import UNSENT
from duetime.store.ended import owned, ownerless
from duetime.store.handlers import handlers
from duetime.store.sqlite.on_alerts import AlertCommands
from duetime.store.sqlite.on_channels import ChannelCommands
from duetime.store.sqlite.on_circuits import CircuitCommands
from duetime.store.sqlite.on_connections import ConnectionCommands
from duetime.store.sqlite.on_due import DueCommands
from duetime.store.sqlite.on_events import EventCommands
from duetime.store.sqlite.on_executions import ExecutionCommands
from duetime.store.sqlite.on_housekeeping import HousekeepingCommands
from duetime.store.sqlite.on_identity import IdentityCommands
from duetime.store.sqlite.on_jobs import JobCommands
from duetime.store.sqlite.on_nodes import NodeCommands
from duetime.store.sqlite.on_statistics import StatisticsCommands
from duetime.store.sqlite.statements import Mark, Statements, page


class Applier:
    def __init__(self, connection: apsw.Connection, capacity: Capacity) -> None:
        self._connection = connection
        self._statements = statements = Statements(connection, capacity)
        self._jobs = JobCommands(statements)
        self._apply = handlers(
            self, self._jobs, DueCommands(statements), ExecutionCommands(statements), NodeCommands(statements),
            IdentityCommands(statements), ConnectionCommands(statements), ChannelCommands(statements),
            CircuitCommands(statements), HousekeepingCommands(statements), AlertCommands(statements, self._jobs),
            StatisticsCommands(statements), EventCommands(statements),
        )  # fmt: skip

    def apply(self, command: c.Command) -> Any:
        """Returns the command's result, or the error that refuses it; a refused command has changed nothing."""
        self._connection.execute("SAVEPOINT command")
        mark = self._statements.mark()
        try:
            answer = self._apply[type(command)](command)
        except DuetimeError as error:
            self._undo(mark)
            answer = error
        except (apsw.ConstraintError, ValueError, OverflowError) as error:
            self._undo(mark)
            answer = unwritable(error)
        if isinstance(answer, DuetimeError) and type(command) is c.OnFinish and type(command.command) is c.CreateJobs:
            self._statements.run("set_reason", execution=command.execution_id, reason=UNSENT)
        self._connection.execute("RELEASE command")
        return answer

    def on_finish(self, command: c.OnFinish) -> Any:
        end = self._statements.ended.find(command)
        if end is None:
            return None
        following = command.command
        if ownerless(following):
            ((_, owner),) = self._statements.rows("list_owners", jobs=page([end.job_id]))
            following = owned(cast("c.CreateJobs", following), owner)
        return self._apply[type(following)](following)

    def with_notifications(self, command: c.WithNotifications) -> c.Carried:
        answer = self._apply[type(command.first)](command.first)
        others = [self.apply(then) for then in command.then]
        return c.Carried(answer, tuple(other for other in others if isinstance(other, DuetimeError)))

    def begin(self) -> None:
        """Begins a commit. Clears what a rolled-back commit may have left."""
        self._statements.forget()

    def end(self) -> None:
        """Writes limits and the audit, as the last step before a commit."""
        self._statements.write_limits()
        self._statements.write_audit()

    def _undo(self, mark: Mark) -> None:
        self._connection.execute("ROLLBACK TO command")
        self._statements.go_back(mark)

    def create_together(self, creates: Sequence[c.Command]) -> bool:
        """Writes several CreateJobs as one page. Returns False and changes nothing if one can't be written."""
        self._connection.execute("SAVEPOINT command")
        mark = self._statements.mark()
        try:
            self._jobs.create_together(cast("Sequence[c.CreateJobs]", creates))
        except (DuetimeError, ValueError, OverflowError):
            self._undo(mark)
            self._connection.execute("RELEASE command")
            return False
        self._connection.execute("RELEASE command")
        return True
