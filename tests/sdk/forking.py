"""A program that enqueues before a fork, in the children, and after it: forking.py URL HOW.

Prints the ids of the enqueued executions, each on a line. An embedded app also prints "ran" and the process for each.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading

from duetime import AsyncClient, Client, Duetime
from duetime.client import DuetimeError

CHILDREN = 4
PATIENCE_SECONDS = 120.0
JOB = {"name": "forked", "type": "python", "schedule": "on_demand", "payload": {"function": "forked"}}

app = Duetime(sys.argv[1])
ran: list[str] = []
more = threading.Condition()


@app.job(name="forked")
def forked(who: str) -> None:
    with more:
        ran.append(who)
        more.notify_all()


def say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())  # in one write, so that lines of other processes do not mix


def enqueue(who: str) -> None:
    say(app.enqueue(forked, who).job_id)


def enqueue_async(who: str) -> None:
    say(asyncio.run(app.enqueue_async(forked, who)).job_id)


def enqueue_often(who: str) -> None:
    """Enqueues from several threads of a child at once."""
    threads = [threading.Thread(target=enqueue, args=(f"{who}.{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_fork(act: object, depth: int = 1) -> None:
    """Children that end like programs: freeing objects must neither hang nor harm the parent."""
    children = []
    for number in range(CHILDREN):
        child = os.fork()
        if not child:
            act(f"child {number} of {os.getppid()}")  # type: ignore[operator]
            if depth > 1 and number == 0:
                by_fork(act, depth - 1)
            sys.exit(0)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, status


def by_multiprocessing() -> None:
    with multiprocessing.get_context("fork").Pool(CHILDREN) as pool:
        pool.map(enqueue, [f"child {number}" for number in range(2 * CHILDREN)], chunksize=1)


def by_client() -> None:
    """Only the client: created and used before the fork, and used after it."""
    with Client(sys.argv[1]) as client:
        say(client.create_job(JOB).job_id)
        by_fork(lambda who: follow(client, client.create_job(JOB).job_id))
        say(client.create_job(JOB).job_id)


def follow(client: Client, job_id: str) -> None:
    """Prints the job that it created when the stream of events reports it."""
    for event in client.events(after=0):
        if event.data.get("job_id") == job_id:
            say(job_id)
            break


def by_async_client() -> None:
    client = AsyncClient(sys.argv[1])

    async def make() -> None:
        job_id = (await client.create_job(JOB)).job_id
        async for event in client.events(after=0):
            if event.data.get("job_id") == job_id:
                say(job_id)
                break

    by_fork(lambda who: asyncio.run(make()))
    asyncio.run(make())


def main(how: str) -> None:
    if how == "client":
        return by_client()
    if how == "async client":
        return by_async_client()
    enqueue("parent")
    match how:
        case "fork":
            by_fork(enqueue)
        case "async":
            by_fork(enqueue_async)
        case "threads":
            by_fork(enqueue_often)
        case "grandchildren":
            by_fork(enqueue, depth=2)
        case "multiprocessing":
            by_multiprocessing()
    return enqueue("parent again")


def outlive() -> None:
    """A child that continues after its parent was killed. It prints that, and the error of enqueue."""
    ready, begun = os.pipe()
    if not os.fork():
        enqueue("child")
        os.write(begun, b".")
        assert sys.stdin.readline() == "gone\n"
        try:
            enqueue("child, alone")
        except DuetimeError as error:
            say("away", str(error))
        sys.stdin.readline()  # it runs until the test has checked it
        sys.exit(0)
    os.read(ready, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if not app.is_embedded:
        main(sys.argv[2])
    elif sys.argv[2] == "outlive":
        app.start()
        outlive()
    else:
        with app:
            main(sys.argv[2])
            wanted = int(sys.argv[3])
            with more:
                more.wait_for(lambda: len(ran) >= wanted, PATIENCE_SECONDS)
        for who in ran:
            say("ran", who)
