"""Finds the on-finish commands that this commit must apply, and the tenants whose rows commands lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from duetime.domain import commands as c
from duetime.store.ended import owned, ownerless
from duetime.store.postgres.statements import Statements


async def due_commands(db: Statements, on_finish: Sequence[c.OnFinish]) -> list[c.Command | None]:
    """Returns the command to apply for each; None if its execution did not end that way in this transaction."""
    ends = [db.pending.ended.find(on_finish) for on_finish in on_finish]
    jobs = {end.job_id for end, one in zip(ends, on_finish, strict=True) if end and ownerless(one.command)}
    owners = dict(await db.rows("list_owners", jobs=sorted(jobs))) if jobs else {}
    return [
        None
        if end is None
        else owned(cast("c.CreateJobs", one.command), owners[end.job_id])
        if ownerless(one.command)
        else one.command
        for end, one in zip(ends, on_finish, strict=True)
    ]


def chained_tenants(commands: Sequence[c.Command]) -> set[str]:
    """Returns the tenants whose chains these commands add to."""
    tenants: set[str] = set()
    for command in commands:
        if isinstance(command, c.CreateJobs):
            tenants.update(job.tenant for job in command.jobs if job.spec.after)
        elif isinstance(command, c.ChangeJob) and command.spec.after:
            tenants.add(command.tenant)
    return tenants


_REGISTERING = (
    c.AddSubscription, c.PutConnection, c.PutChannel, c.RotateSigningKey, c.JoinWorker, c.PutAlertRule,
)  # fmt: skip


def registering_tenants(commands: Sequence[c.Command]) -> set[str]:
    """Returns the tenants of whose API keys, channels and the like these commands count or replace some.

    Only one transaction at a time may do that for a tenant.
    """
    tenants: set[str] = set()
    for command in commands:
        if isinstance(command, c.AddKey):
            tenants.add(command.key.tenant)
        elif isinstance(command, _REGISTERING):
            tenants.add(command.tenant)
        elif isinstance(command, c.AddSilence):
            tenants.add(command.silence.tenant)
    return tenants
