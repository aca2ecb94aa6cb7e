-- Commands on jobs. A page of rows is one JSON parameter, which jsonb_each reads: one call into SQLite for each page, so
-- that Python's lock is released once, and not once a row. (While another thread is busy, executemany wrote 470 rows/s,
-- and one page 76,000 rows/s. json_each would print each row and parse it again.)
-- Queries by state also name the three states of executions_open: SQLite uses a partial index only if the query contains
-- its condition. With INDEXED BY, a query that can't use the index fails, instead of being slow.
-- Differs from the PostgreSQL version in that nothing is locked (no `lock_…`, no FOR UPDATE): one thread writes. And open
-- executions are rows of `executions` like the others; PostgreSQL has a second table for them, `open_runs`.

-- name: create_jobs
-- Differs from the PostgreSQL version in that jobs and timers are two pages: a statement of SQLite writes one table.
INSERT INTO jobs (id, tenant, key, name, type, owner, created_at, updated_at, size, spec)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 6,
       value ->> 7, value -> 8
FROM jsonb_each(:jobs);

-- name: create_timers
INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, 'PENDING', 1, value ->> 3, value ->> 4
FROM jsonb_each(:timers);

-- name: add_idempotency_key
-- Differs from the PostgreSQL version in that the key is looked up first, and added last: no other writer can add it in
-- between.
INSERT INTO idempotency_keys (tenant, key, fingerprint, response, created_at)
VALUES (:tenant, :key, :fingerprint, :response, :now);

-- name: get_timer
SELECT status, version, due_at, resume_at FROM timers WHERE job = unhex(:job, '-') AND tenant = :tenant;

-- name: change_job
UPDATE jobs SET key = :key, name = :name, type = :type, updated_at = :now, size = :size, spec = :spec
WHERE id = unhex(:job, '-');

-- name: get_size
SELECT size FROM jobs WHERE id = unhex(:job, '-');

-- name: get_encrypted
-- Differs from the PostgreSQL version in that jobs are encrypted again one by one: the command is rare, and not urgent.
SELECT j.tenant, j.size FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE j.id = unhex(:job, '-') AND t.version = :version;

-- name: reencrypt
UPDATE jobs SET size = :size, spec = :spec WHERE id = unhex(:job, '-');

-- name: complete_jobs
-- Completes the jobs of the page that have no due instant and no open execution.
UPDATE timers SET status = 'COMPLETED'
WHERE job IN (SELECT unhex(value, '-') FROM jsonb_each(:jobs)) AND status = 'PENDING' AND due_at IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM executions AS e WHERE e.job = timers.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING'))
RETURNING tenant;

-- name: add_skips
INSERT INTO skips (job, tenant, first_at, until_at, count, reason, decided_at)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, :now
FROM json_each(:skips)
WHERE true
ON CONFLICT DO NOTHING;

-- name: cancel_waiting
-- Differs from the PostgreSQL version in that the totals are counted by a query before it: RETURNING has the new state,
-- not the old one.
-- (:now is NULL for rows that will be removed soon: they end at their due instant.)
UPDATE executions INDEXED BY executions_open
SET state = 'CANCELLED', reason = 'cancelled', ended_at = coalesce(:now, due_at), held = 0
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state IN ('QUEUED', 'RETRYING');

-- name: request_cancel_of_running
UPDATE executions INDEXED BY executions_open SET cancel_requested = 1
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state = 'RUNNING';

-- name: request_cancel
UPDATE executions SET cancel_requested = 1
WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids)) AND state = 'RUNNING';

-- name: list_running_of_job
SELECT uuid_text(id) FROM executions INDEXED BY executions_open
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state = 'RUNNING';

-- name: count_waiting_of_job
SELECT state, count(*) FROM executions INDEXED BY executions_open
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state IN ('QUEUED', 'RETRYING')
GROUP BY state;

-- name: list_purgeable
-- Differs from the PostgreSQL version in that the rows of each table are removed by a statement of its own
-- (`remove_executions`, `purge_…`).
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
    SELECT id FROM executions INDEXED BY executions_instant WHERE job = unhex(:job, '-') LIMIT :limit);

-- name: purge_skips
DELETE FROM skips WHERE job = unhex(:job, '-');

-- name: purge_timer
DELETE FROM timers WHERE job = unhex(:job, '-');

-- name: purge_job
DELETE FROM jobs WHERE id = unhex(:job, '-');
