"""What follows from an end, carried out in its commit: which of it, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from duetime.domain import commands as c
from duetime.store.ended import owned, ownerless
from duetime.store.postgres.statements import Statements


async def due_commands(db: Statements, on_finish: Sequence[c.OnFinish]) -> list[c.Command | None]:
    """What each of them carries out; None if its execution has not ended so in this transaction."""
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
    """Whose chains these commands add to."""
    tenants: set[str] = set()
    for command in commands:
        if isinstance(command, c.CreateJobs):
            tenants.update(job.tenant for job in command.jobs if job.spec.after)
        elif isinstance(command, c.ChangeJob) and command.spec.after:
            tenants.add(command.tenant)
    return tenants


def registering_tenants(commands: Sequence[c.Command]) -> set[str]:
    """Whose keys, subscriptions, connections, signing keys or workers these count or replace: one at a time may."""
    tenants: set[str] = set()
    for command in commands:
        if isinstance(command, c.AddKey):
            tenants.add(command.key.tenant)
        elif isinstance(command, c.AddSubscription | c.PutConnection | c.RotateSigningKey | c.JoinWorker):
            tenants.add(command.tenant)
    return tenants
