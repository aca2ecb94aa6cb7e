"""A process that uses a store and prints acknowledged writes on stdout, until it is killed.

python child.py BACKEND FOLDER create          creates jobs without end; prints each id after its commit
python child.py BACKEND FOLDER full BYTES      creates until a file may grow no more, then again when it may
python child.py BACKEND FOLDER storm           creates, changes, purges, reencrypts without end; prints now and then
python child.py BACKEND FOLDER open            opens the store, prints the result
"""

from __future__ import annotations

import asyncio
import resource
import sys
from itertools import count
from pathlib import Path

from contract.store.conftest import FACTORIES
from duetime.domain import commands as c
from duetime.domain.capacity import UNBOUNDED
from duetime.domain.commands import CreateJobs
from duetime.domain.errors import Overloaded
from duetime.ports.store import Store
from samples import NOW, TENANT, change_of, entry_of, new_job, one, spec


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def create(store: Store) -> None:
    async def client() -> None:
        while True:
            jobs = tuple(new_job() for _ in range(3))
            if await one(store, CreateJobs(NOW, jobs)) is None:
                say(" ".join(job.job_id for job in jobs))

    await asyncio.gather(*(client() for _ in range(8)))


async def storm(store: Store) -> None:
    """Each change writes an entry with the change in the number of jobs."""

    async def client(number: int) -> None:
        known: list[str] = []
        for turn in count():
            jobs = tuple(new_job(spec(description="x" * (turn % 7) * 100)) for _ in range(1 + turn % 3))
            commands: list[c.Command] = [
                c.CreateJobs(NOW, jobs, audit=(entry_of("job.create", after={"jobs": len(jobs)}),)),
                c.Reencrypt(tuple((job_id, 1, spec(name="encrypted again")) for job_id in known[::2])),
            ]
            if known:
                longer = spec(description="y" * turn)
                commands.append(
                    change_of(known[-1], longer, audit=entry_of("job.change", known[-1], after={"jobs": 0}))
                )
                commands += [
                    c.PurgeJob(TENANT, job_id, audit=entry_of("job.purge", job_id, after={"jobs": -1}))
                    for job_id in known[:-2]
                ]
            await store.apply(commands)
            known = known[-2:] + [job.job_id for job in jobs]
            if number == 0:
                say("more")

    await asyncio.gather(*(client(number) for number in range(8)))


async def fill(store: Store, most_bytes: int) -> None:
    """Commands after the limit must raise Overloaded; after it is lifted, writes continue."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, unlimited[1]))
    refused = 0
    while refused < 3:
        job = new_job(spec(description="x" * 1900))
        try:
            if await one(store, CreateJobs(NOW, (job,))) is None:
                say(job.job_id)
        except Overloaded as error:
            refused += 1
            say(f"refused {job.job_id} {error.retry_after} {error.message}")
            say(f"check {await store.check()}")
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    job = new_job()
    assert await one(store, CreateJobs(NOW, (job,))) is None
    say(job.job_id)
    say(f"healed {await store.check()}")
    await store.stop()


async def main(backend: str, folder: str, deed: str, *arguments: str) -> None:
    store = FACTORIES[backend](Path(folder), UNBOUNDED)
    try:
        await store.start()
    except Exception as error:  # noqa: BLE001 (the parent reads what came of it)
        say(f"{type(error).__name__}: {error}")
        return
    say("started")
    if deed == "create":
        await create(store)
    elif deed == "storm":
        await storm(store)
    elif deed == "full":
        await fill(store, int(arguments[0]))
    await store.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
