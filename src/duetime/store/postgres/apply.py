"""Applies the commands of one transaction. Several commands get a savepoint each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import asyncpg

from duetime.domain import commands as c
from duetime.domain.capacity import UNBOUNDED, Capacity
from duetime.domain.errors import DuetimeError, unwritable
from duetime.domain.ids import instant_of, is_id
from duetime.domain.limits import Quota
from duetime.domain.on_finish import UNSENT
from duetime.store.handlers import handlers
from duetime.store.postgres import faults
from duetime.store.postgres.following import chained_tenants, due_commands, registering_tenants
from duetime.store.postgres.on_alerts import AlertCommands
from duetime.store.postgres.on_channels import ChannelCommands
from duetime.store.postgres.on_circuits import CircuitCommands
from duetime.store.postgres.on_connections import ConnectionCommands
from duetime.store.postgres.on_due import DueCommands
from duetime.store.postgres.on_events import EventCommands
from duetime.store.postgres.on_executions import ExecutionCommands
from duetime.store.postgres.on_housekeeping import HousekeepingCommands
from duetime.store.postgres.on_identity import IdentityCommands
from duetime.store.postgres.on_jobs import JobCommands
from duetime.store.postgres.on_nodes import NodeCommands
from duetime.store.postgres.on_statistics import StatisticsCommands
from duetime.store.postgres.statements import SlowPathNeeded, Statements


class Applier:
    def __init__(self, connection: asyncpg.Connection, begin: str, capacity: Capacity = UNBOUNDED) -> None:
        self.statements = statements = Statements(connection, capacity)
        self._begin = begin
        jobs = JobCommands(statements)
        self._create_page = jobs.create_together
        self._apply = handlers(
            self, jobs, DueCommands(statements), ExecutionCommands(statements), NodeCommands(statements),
            IdentityCommands(statements), ConnectionCommands(statements), ChannelCommands(statements),
            CircuitCommands(statements), HousekeepingCommands(statements), AlertCommands(statements, jobs),
            StatisticsCommands(statements), EventCommands(statements),
        )  # fmt: skip

    async def apply(
        self, commands: Sequence[c.Command], *, takes_turns: bool = False, limits_in_turns: bool = False
    ) -> tuple[list[Any], bool]:
        """Returns the commands' results, and whether there is anything to commit.

        `takes_turns`: transactions that add jobs wait for each other at a lock.
        `limits_in_turns`: so do those that take from the same quota; else the last statement checks the quota.
        If the only command of a transaction is refused, the transaction must be rolled back; nothing else is lost.
        """
        if takes_turns:
            await self.statements.lock_room({tenant for command in commands for tenant in adding_tenants(command)})
        if keys := {quota.key for command in commands for quota in _quotas_of(command, limits_in_turns)}:
            await self.statements.lock_limits(keys)
        if tenants := chained_tenants(commands):
            await self.statements.run("lock_chains", tenants=sorted(tenants))
        if tenants := registering_tenants(commands):
            await self.statements.run("lock_registered", tenants=sorted(tenants))
        if len(commands) == 1:
            answer, is_good = await self._alone(commands[0], f"ROLLBACK; {self._begin}")
            return [answer], is_good
        await self._lock_timers(commands)
        results: list[Any] = []
        for group in _groups(commands):
            creates = await self._following_creates(group) if type(group[0]) is c.OnFinish else group
            if len(group) > 1 and (not creates or await self._create_together(creates)):
                results.extend([None] * len(group))
            else:
                results.extend([await self._beside_others(command) for command in group])
        return results, True

    async def _following_creates(self, group: Sequence[c.Command]) -> list[c.Command]:
        """Returns the CreateJobs commands whose executions have ended in this transaction."""
        if len(group) == 1:
            return []
        due = await due_commands(self.statements, cast("Sequence[c.OnFinish]", group))
        return [command for command in due if command is not None]

    async def on_finish(self, command: c.OnFinish) -> Any:
        (due,) = await due_commands(self.statements, [command])
        return None if due is None else await self._apply[type(due)](due)

    async def _alone(self, command: c.Command, to_undo: str) -> tuple[Any, bool]:
        pending = self.statements.pending.copy()
        try:
            try:
                return await self._apply[type(command)](command), True
            except SlowPathNeeded:
                self.statements.pending = pending
                return await self._on_slow_path(command, to_undo), True
        except (DuetimeError, *faults.REFUSED) as error:
            return _refusal(error), False

    async def _on_slow_path(self, command: c.Command, to_undo: str) -> Any:
        await self.statements.connection.execute(to_undo)
        self.statements.on_slow_path = True
        try:
            return await self._apply[type(command)](command)
        finally:
            self.statements.on_slow_path = False

    async def with_notifications(self, command: c.WithNotifications) -> c.Carried:
        answer = await self._apply[type(command.first)](command.first)
        others = [await self._beside_others(then) for then in command.then]
        return c.Carried(answer, tuple(other for other in others if isinstance(other, DuetimeError)))

    async def _beside_others(self, command: c.Command) -> Any:
        connection, pending = self.statements.connection, self.statements.pending.copy()
        await connection.execute("SAVEPOINT command")
        answer, is_good = await self._alone(command, "ROLLBACK TO SAVEPOINT command")
        if not is_good:
            self.statements.pending = pending
            await connection.execute("ROLLBACK TO SAVEPOINT command")
            if type(command) is c.OnFinish and type(command.command) is c.CreateJobs:
                at, execution = instant_of(command.execution_id), command.execution_id
                await self.statements.run("set_reason", at=at, execution=execution, reason=UNSENT)
        await connection.execute("RELEASE SAVEPOINT command")
        return answer

    async def _create_together(self, creates: Sequence[c.Command]) -> bool:
        """Writes several CreateJobs as one page. Returns False and changes nothing if one can't be written."""
        connection, pending = self.statements.connection, self.statements.pending.copy()
        await connection.execute("SAVEPOINT command")
        try:
            await self._create_page(cast("Sequence[c.CreateJobs]", creates))
        except (DuetimeError, *faults.REFUSED):
            self.statements.pending = pending
            await connection.execute("ROLLBACK TO SAVEPOINT command; RELEASE SAVEPOINT command")
            return False
        await connection.execute("RELEASE SAVEPOINT command")
        return True

    async def _lock_timers(self, commands: Sequence[c.Command]) -> None:
        """Locks the timers of all commands in one order; one command after the other could cause deadlocks."""
        locking = [jobs for command in commands if (jobs := _jobs_of(command))]
        if len(locking) > 1:
            jobs = sorted({job for jobs in locking for job in jobs if is_id(job)})
            await self.statements.run("lock_timers", jobs=jobs)


def adding_tenants(command: c.Command) -> set[str]:
    """Returns the tenants whose capacity the command may need."""
    match command:
        case c.OnFinish():
            return adding_tenants(command.command)
        case c.WithNotifications():
            return set().union(*map(adding_tenants, (command.first, *command.then)))
        case c.CreateJobs():
            return {job.tenant for job in command.jobs}
        case c.ApplyAlerts():
            return set().union(*map(adding_tenants, command.notices))
        case c.ChangeJob():
            return {command.tenant}
        case _:
            return set()


def _quotas_of(command: c.Command, for_jobs: bool) -> set[Quota]:
    """Returns the quotas that the command has to lock."""
    match command:
        case c.OnFinish():
            return _quotas_of(command.command, for_jobs)
        case c.WithNotifications():
            return set().union(*(_quotas_of(one, for_jobs) for one in (command.first, *command.then)))
        case c.TakeRequests():
            return {command.quota}
        case c.JoinWorker() if command.limits is not None:
            return {command.limits.quota(command.tenant)}
        case c.ApplyAlerts():
            return set().union(*(_quotas_of(one, for_jobs) for one in command.notices))
        case c.CreateJobs() if for_jobs and command.quota is not None:
            return {command.quota}
        case _:
            return set()


def _jobs_of(command: c.Command) -> list[str]:
    match command:
        case c.Fire():
            return [move.job_id for move in command.moves]
        case c.Finish():
            return [end.job_id for end in command.ends]
        case c.OnFinish():
            return _jobs_of(command.command)
        case c.WithNotifications():
            return _jobs_of(command.first)
        case c.ChangeJob() | c.PauseJob() | c.ResumeJob() | c.CancelJob() | c.PurgeJob() | c.AddExecution():
            return [command.job_id]
        case _:
            return []


def _groups(commands: Sequence[c.Command]) -> Iterator[list[c.Command]]:
    """Yields adjacent CreateJobs as one group (64 clients may send them at once), and every other command alone.

    Adjacent creates of on-finish commands are a group, too: a thousand failures may need a thousand notifications.
    """
    for kind, group in groupby(commands, key=_kind_of):
        if kind:
            yield list(group)
        else:
            yield from ([command] for command in group)


def _kind_of(command: c.Command) -> str:
    if type(command) is c.OnFinish:
        return "following" if _kind_of(command.command) else ""
    return "create" if type(command) is c.CreateJobs and not command.idempotency else ""


def _refusal(error: Exception) -> DuetimeError:
    return error if isinstance(error, DuetimeError) else unwritable(error)
