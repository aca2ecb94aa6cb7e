"""Bare SQLite: the rows that Duetime writes, written by a loop that does nothing else.

`python -m bench.bare_sqlite creates|executions COUNT FOLDER` writes them with the product's own schema and settings, a
page a commit, and prints the seconds. Rows are made before the clock starts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw
import msgspec
import uuid_utils

from bench.processes import ROOT

MIGRATIONS = ROOT / "src" / "duetime" / "store" / "sqlite" / "migrations"
PAGE = 10_000
NOW = 1_800_000_000_000
DUE_AT = NOW + 3_600_000

Statement = tuple[str, Sequence[tuple[object, ...]]]

ADD_JOB = """
    INSERT INTO jobs (id, tenant, key, name, type, owner, created_at, updated_at, spec)
    VALUES (?, 'default', NULL, ?, 'http_request', 'local', ?, ?, ?)"""
ADD_TIMER = """
    INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at)
    VALUES (?, 'default', ?, 'PENDING', 1, 0, ?)"""
ADD_EXECUTION = """
    INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint, due_at,
                            attempt, token, node)
    VALUES (?, ?, 'default', ?, 0, 'schedule', 'RUNNING', 5, 0, ?, 1, 1, 1)"""
MOVE_TIMER = "UPDATE timers SET due_at = NULL, fired = fired + 1 WHERE job = ?"
FINISH_EXECUTION = "UPDATE executions SET state = 'COMPLETED', started_at = ?, ended_at = ? WHERE id = ?"
ADD_ATTEMPT = """
    INSERT INTO attempts (execution, attempt, node, started_at, ended_at, http_status, response)
    VALUES (?, 1, 1, ?, ?, 200, 'ok')"""
COUNT_RUN = """
    UPDATE timers SET status = 'COMPLETED', runs = runs + 1, successes = successes + 1, busy_ms = busy_ms + 1,
                      last_run_at = ?, last_state = 'COMPLETED'
    WHERE job = ?"""


def schema() -> str:
    return "\n".join(path.read_text() for path in sorted(MIGRATIONS.glob("*.sql")))


def open_database(folder: Path, schema_sql: str) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "bare.db"))
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "cache_size = -32768",
        "temp_store = MEMORY",
        "wal_autocheckpoint = 4000",
    ):
        list(connection.execute(f"PRAGMA {setting}"))
    list(connection.execute(schema_sql))
    return connection


def write(connection: apsw.Connection, transactions: Iterable[Sequence[Statement]]) -> float:
    """Commit each transaction in turn; answers with the seconds that all of them took."""
    started = time.perf_counter()
    for statements in transactions:
        connection.execute("BEGIN IMMEDIATE")
        for sql, rows in statements:
            connection.executemany(sql, rows)
        connection.execute("COMMIT")
    return time.perf_counter() - started


def ids(count: int) -> list[bytes]:
    return [uuid_utils.uuid7().bytes for _ in range(count)]


def creates(jobs: Sequence[bytes]) -> list[list[Statement]]:
    """A job and its timer."""
    made: list[list[Statement]] = []
    for at in range(0, len(jobs), PAGE):
        page = list(enumerate(jobs[at : at + PAGE], at))
        added = [(job, f"job-{n}", NOW, NOW, spec(n)) for n, job in page]
        made.append([(ADD_JOB, added), (ADD_TIMER, [(job, n % 64, DUE_AT) for n, job in page])])
    return made


def executions(jobs: Sequence[bytes]) -> list[list[Statement]]:
    """For each page: fire it (execution in, timer moved), then finish it (execution, attempt, timer)."""
    made: list[list[Statement]] = []
    for at in range(0, len(jobs), PAGE):
        page = jobs[at : at + PAGE]
        runs = ids(len(page))
        born = [(run, job, DUE_AT, DUE_AT) for run, job in zip(runs, page, strict=True)]
        made.append([(ADD_EXECUTION, born), (MOVE_TIMER, [(job,) for job in page])])
        made.append(
            [
                (FINISH_EXECUTION, [(DUE_AT, DUE_AT + 1, run) for run in runs]),
                (ADD_ATTEMPT, [(run, DUE_AT, DUE_AT + 1) for run in runs]),
                (COUNT_RUN, [(DUE_AT + 1, job) for job in page]),
            ]
        )
    return made


def spec(number: int) -> str:
    payload = {"url": "http://127.0.0.1:9/never", "body": {"n": number}}
    job = {"name": f"job-{number}", "schedule": "2099-01-01T00:00:00Z", "payload": payload}
    return msgspec.json.encode(job).decode()


def main(what: str, count: int, folder: Path) -> float:
    connection = open_database(folder, schema())
    jobs = ids(count)
    seconds = write(connection, creates(jobs))
    return seconds if what == "creates" else write(connection, executions(jobs))


if __name__ == "__main__":
    gc.disable()
    print(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
