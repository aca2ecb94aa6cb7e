"""Bare functions: two processes that call the no-op and write what Duetime writes, and nothing else is done.

`python -m bench.bare_functions COUNT FOLDER` prints the instant at which they were let loose, in seconds since the
epoch. Each takes a page of due timers, writes their executions as its own, calls, and writes the ends: two commits a
page, with the product's schema and settings. No server stands between them and the file.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw

from bench.bare_sqlite import (
    ADD_ATTEMPT,
    ADD_EXECUTION,
    COUNT_RUN,
    DUE_AT,
    FINISH_EXECUTION,
    MOVE_TIMER,
    creates,
    ids,
    open_database,
    schema,
    write,
)
from bench.noop import noop

PROCESSES = 2
PAGE = 1000  # calls: a worker gets and reports as many at a time at most
DUE = """
    SELECT job, spec ->> '$.payload.body.n' FROM timers JOIN jobs ON jobs.id = timers.job
    WHERE due_at <= ? ORDER BY due_at LIMIT ?"""


def work(folder: Path, begin: Barrier) -> None:
    connection = apsw.Connection(str(folder / "bare.db"))
    connection.set_busy_timeout(60_000)
    for setting in ("synchronous = FULL", "cache_size = -32768", "wal_autocheckpoint = 4000"):
        list(connection.execute(f"PRAGMA {setting}"))
    begin.wait()
    while page := _take(connection):
        for _, _, number in page:
            noop(number)
        write(
            connection,
            [
                [
                    (FINISH_EXECUTION, [(DUE_AT, DUE_AT + 1, run) for run, _, _ in page]),
                    (ADD_ATTEMPT, [(run, DUE_AT, DUE_AT + 1) for run, _, _ in page]),
                    (COUNT_RUN, [(DUE_AT + 1, job) for _, job, _ in page]),
                ]
            ],
        )


def _take(connection: apsw.Connection) -> list[tuple[bytes, bytes, int]]:
    connection.execute("BEGIN IMMEDIATE")
    due = list(connection.execute(DUE, (DUE_AT, PAGE)))
    page = [(run, job, number) for run, (job, number) in zip(ids(len(due)), due, strict=True)]
    connection.executemany(ADD_EXECUTION, [(run, job, DUE_AT, DUE_AT) for run, job, _ in page])
    connection.executemany(MOVE_TIMER, [(job,) for _, job, _ in page])
    connection.execute("COMMIT")
    return page


def main(count: int, folder: Path) -> float:
    connection = open_database(folder, schema())
    write(connection, creates(ids(count)))
    connection.close()
    begin = multiprocessing.Barrier(PROCESSES + 1)
    workers = [multiprocessing.Process(target=work, args=(folder, begin)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    begin.wait()
    begun_at = time.time()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a bare worker ended with {worker.exitcode}")
    return begun_at


if __name__ == "__main__":
    print(main(int(sys.argv[1]), Path(sys.argv[2])))
