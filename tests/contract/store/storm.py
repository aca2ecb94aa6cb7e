"""Creates, changes, purges and reencrypts at random, with some refusals: counters must stay exact."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from duetime.domain import commands as c
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import DAY
from duetime.domain.job import JobSpec
from duetime.domain.limits import Limit, Quota
from duetime.ports.store import Store
from samples import NOW, TENANT, change_of, entry_of, new_id, new_job, spec

TENANTS = (TENANT, "default", "ü")
KINDS = ("create", "batch", "again", "quota", "change", "change", "purge", "purge", "purge", "reencrypt")


class Storm:
    """Eight clients; each sends a few commands at a time, on jobs that it has read. An operation is one command."""

    def __init__(self, store: Store, seed: int, quota: int) -> None:
        """`quota`: jobs that one of the users may create in a day."""
        self._store = store
        self._quota = Quota(TENANT, "bob", Limit("jobs", quota, DAY))
        self._rng = random.Random(seed)
        self._known: list[list[tuple[str, str, int]]] = [[] for _ in range(8)]  # by client: tenant, job, version
        self.done: Counter[str] = Counter()  # by kind and by result
        self.entries = 0  # that must be in the audit
        self.operations = 0

    async def run(self, operations: int) -> None:
        await asyncio.gather(*(self._client(operations // 8, known) for known in self._known))

    async def _client(self, operations: int, known: list[tuple[str, str, int]]) -> None:
        while operations > 0:
            commands = [self._command(known) for _ in range(self._rng.choice((1, 2, 10, 40)))]
            operations -= sum(map(_weight, commands))
            for command, answer in zip(commands, await self._store.apply(commands), strict=True):
                self._note(command, answer, known)

    def _definition(self) -> JobSpec:
        text = self._rng.choice(("", 'ü\n"\x00\\', "x" * 700)) * self._rng.randrange(3)
        return spec(key="one" if self._rng.random() < 0.04 else None, description=text)

    def _command(self, known: list[tuple[str, str, int]]) -> c.Command:
        kind = self._rng.choice(KINDS)
        if kind in ("create", "batch", "again", "quota") or not known:
            tenant = TENANT if kind == "quota" else self._rng.choice(TENANTS)
            count = self._rng.randrange(2, 20) if kind == "batch" else 1
            jobs = tuple(new_job(self._definition(), tenant=tenant) for _ in range(count))
            record = c.IdempotencyRecord(tenant, f"{self._rng.randrange(50)}", "f", "r") if kind == "again" else None
            noted = (entry_of("job.create", jobs[0].job_id),)
            return c.CreateJobs(NOW, jobs, record, self._quota if kind == "quota" else None, noted)
        tenant, job_id, version = self._rng.choice(known)
        if self._rng.random() < 0.1:
            job_id, version = self._rng.choice(((new_id(), version), (job_id, version + 1)))
        if kind == "change":
            noted_change = entry_of("job.change", job_id)
            return change_of(job_id, self._definition(), version, tenant=tenant, audit=noted_change)
        if kind == "purge":
            return c.PurgeJob(tenant, job_id, audit=entry_of("job.purge", job_id))
        others = [(job, version) for _, job, version in self._rng.sample(known, min(20, len(known)))]
        return c.Reencrypt(tuple((job, version, self._definition()) for job, version in dict(others).items()))

    def _note(self, command: c.Command, answer: Any, known: list[tuple[str, str, int]]) -> None:
        self.done[f"{type(command).__name__} {type(answer).__name__}"] += 1
        self.operations += _weight(command)
        if isinstance(answer, DuetimeError):
            return
        match command:
            case c.CreateJobs() if answer is None:
                known += [(job.tenant, job.job_id, 1) for job in command.jobs]
                self.entries += 1
            case c.ChangeJob():
                known.remove((command.tenant, command.job_id, command.version))
                known.append((command.tenant, command.job_id, answer))
                self.entries += 1
            case c.PurgeJob():
                known[:] = [one for one in known if one[1] != command.job_id]
                self.entries += 1
            case _:
                pass


def _weight(command: c.Command) -> int:
    match command:
        case c.CreateJobs():
            return len(command.jobs)
        case c.Reencrypt():
            return len(command.changes)
        case _:
            return 1
