"""A SQLite database with as many jobs as wanted, an execution and an attempt each, spread over five days of history."""

from __future__ import annotations

from pathlib import Path

import msgspec

from duetime.store.sqlite.connection import migrate, open_connection
from samples import NOW, spec

# SQLite generates the rows: the promotion is measured, and not their creation.
_FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :count),
job AS MATERIALIZED (
    SELECT n, unhex(format('%012x', :now - 86400000 + n) || '7000800000000000' || format('%04x', n % 65536)) AS id
    FROM numbers)
"""
_JOBS = """INSERT INTO jobs (id, tenant, name, type, owner, created_at, updated_at, spec)
SELECT id, 'acme', 'job ' || n, 'http_request', 'ann', :now, :now, :spec FROM job"""
_TIMERS = """INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at, fired, runs, successes)
SELECT id, 'acme', n % 64, 'PENDING', 1 + n % 3, 1, :now + n, 1, 1, 1 FROM job"""
_EXECUTIONS = """INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint,
    due_at, attempt, token, node, started_at, ended_at)
SELECT unhex(format('%012x', at) || '7001800000000000' || format('%04x', n % 65536)), id, 'acme', at, 0, 'schedule',
    'COMPLETED', 5, 1, at, 1, 1, 1, at + 5, at + 25
FROM (SELECT n, id, :now - 6 * 86400000 * (n % 5) - n AS at FROM job)"""
_ATTEMPTS = """INSERT INTO attempts (execution, attempt, node, started_at, ended_at, http_status, response)
SELECT id, 1, 1, started_at, ended_at, 200, 'an answer' FROM executions"""


def fill_many(folder: Path, count: int) -> None:
    folder.mkdir(exist_ok=True)
    connection = open_connection(folder, writer=True)
    migrate(connection)
    text = msgspec.json.encode(spec("every 1h", tags={"team": "billing"})).decode()
    values = {"count": count, "now": NOW, "spec": text}
    connection.execute("BEGIN IMMEDIATE; INSERT INTO nodes (name, started_at, ended_at) VALUES ('old', 1, 2)")
    for statement in (_JOBS, _TIMERS, _EXECUTIONS):
        connection.execute(_FILL + statement, values)
    connection.execute(_ATTEMPTS)
    connection.execute("COMMIT")
    connection.close()
