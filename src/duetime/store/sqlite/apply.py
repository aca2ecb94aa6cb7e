"""Commands to SQL: who carries out which, each in a savepoint of its own. Runs on the writer's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

import apsw

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, DuetimeError
from duetime.store.sqlite.on_due import DueCommands
from duetime.store.sqlite.on_jobs import JobCommands
from duetime.store.sqlite.on_nodes import NodeCommands
from duetime.store.sqlite.on_runs import RunCommands
from duetime.store.sqlite.statements import Statements


class Applier:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        statements = Statements(connection)
        self._jobs = JobCommands(statements)
        due, runs, nodes = DueCommands(statements), RunCommands(statements), NodeCommands(statements)
        self._apply: dict[type[c.Command], Callable[[Any], Any]] = {
            c.CreateJobs: self._jobs.create_jobs,
            c.ChangeJob: self._jobs.change_job,
            c.PauseJob: self._jobs.pause_job,
            c.ResumeJob: self._jobs.resume_job,
            c.CancelJob: self._jobs.cancel_job,
            c.PurgeJob: self._jobs.purge_job,
            c.Fire: due.fire,
            c.AddRun: due.add_run,
            c.Redrive: due.redrive,
            c.Claim: runs.claim,
            c.Finish: runs.finish,
            c.Release: runs.release,
            c.CancelExecution: runs.cancel_execution,
            c.StartNode: nodes.start_node,
            c.StopNode: nodes.stop_node,
            c.EndNodes: nodes.end_nodes,
            c.Seal: nodes.seal,
            c.Prune: nodes.prune,
        }

    def apply(self, command: c.Command) -> Any:
        """The command's answer, or the error that refuses it; then it has changed nothing."""
        self._connection.execute("SAVEPOINT command")
        try:
            answer = self._apply[type(command)](command)
        except DuetimeError as error:
            self._connection.execute("ROLLBACK TO command")
            answer = error
        except (apsw.ConstraintError, ValueError, OverflowError) as error:
            # What is wrong is this command, not the database: whoever shares its commit is not to suffer for it.
            self._connection.execute("ROLLBACK TO command")
            answer = Conflict(f"this can't be written as it is: {error}")
        self._connection.execute("RELEASE command")
        return answer

    def create_together(self, creates: Sequence[c.Command]) -> bool:
        """Many creates as few pages; False, and nothing changed, if one of them can't be written."""
        self._connection.execute("SAVEPOINT command")
        try:
            # A page for each instant: what a job is must not depend on who shared its commit.
            for now, page_of in groupby(cast("Sequence[c.CreateJobs]", creates), key=attrgetter("now")):
                self._jobs.create_jobs(c.CreateJobs(now, tuple(job for create in page_of for job in create.jobs)))
        except (DuetimeError, ValueError, OverflowError):
            self._connection.execute("ROLLBACK TO command")
            self._connection.execute("RELEASE command")
            return False
        self._connection.execute("RELEASE command")
        return True
