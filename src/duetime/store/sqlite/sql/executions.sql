-- Commands on executions: claim, finish, release, cancel, progress.

-- name: is_worker_of_another
SELECT 1 FROM workers WHERE node = :node AND tenant <> :tenant;

-- name: list_claimable
-- Differs from the PostgreSQL version in that a claim is three statements, one tenant at a time: list, update, read.
-- PostgreSQL has one for all.
-- One probe for each priority: then the index returns the due executions in order, and reads no others.
-- As many as have :bytes together, and at least one.
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
  SELECT id, size, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes FROM (
    SELECT e.id, j.size
    FROM (SELECT value AS priority FROM json_each('[9,8,7,6,5,4,3,2,1,0]')) AS p
    CROSS JOIN executions AS e INDEXED BY executions_waiting
    ON e.tenant = :tenant AND e.priority = p.priority AND e.due_at <= :now
    CROSS JOIN jobs AS j ON j.id = e.job
    WHERE e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.endpoint >= 0
    LIMIT :limit))
WHERE bytes <= :bytes OR bytes = size;

-- name: list_claimable_only
-- For the endpoints :only, with one probe for each endpoint and priority.
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
  SELECT id, size, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes FROM (
    SELECT e.id, j.size
    FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p CROSS JOIN json_each(:only) AS o
    CROSS JOIN executions AS e INDEXED BY executions_waiting_at
    ON e.tenant = :tenant AND e.priority = p.value AND e.endpoint = o.value AND e.due_at <= :now
    CROSS JOIN jobs AS j ON j.id = e.job
    WHERE e.state IN ('QUEUED', 'RETRYING') AND e.held = 0
    LIMIT :limit))
WHERE bytes <= :bytes OR bytes = size;

-- name: list_claimable_beside
-- Without the endpoints :full: most executions may wait for these, and they are not read. One probe finds the next
-- endpoint of a priority, another one when its first execution is due. Highest priority first; within a priority, all
-- executions of the endpoint that has waited longest. (LIMIT -1: otherwise SQLite drops the order.) At most :most
-- endpoints are read: a tenant that has more delays only itself.
WITH RECURSIVE queue (priority, endpoint) AS (
    SELECT p.value, (SELECT min(e.endpoint) FROM executions AS e INDEXED BY executions_waiting_at
                     WHERE e.tenant = :tenant AND e.priority = p.value AND e.endpoint >= 0
                       AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0)
    FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p
    UNION ALL
    SELECT q.priority, (SELECT min(e.endpoint) FROM executions AS e INDEXED BY executions_waiting_at
                        WHERE e.tenant = :tenant AND e.priority = q.priority AND e.endpoint > q.endpoint
                          AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0)
    FROM queue AS q WHERE q.endpoint IS NOT NULL
    LIMIT :most
),
free AS MATERIALIZED (
    SELECT q.priority, q.endpoint, (SELECT min(e.due_at) FROM executions AS e INDEXED BY executions_waiting_at
                                    WHERE e.tenant = :tenant AND e.priority = q.priority AND e.endpoint = q.endpoint
                                      AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0) AS first_at
    FROM queue AS q
    WHERE q.endpoint IS NOT NULL AND q.endpoint NOT IN (SELECT value FROM json_each(:full))
)
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
  SELECT id, size, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes FROM (
    SELECT e.id, j.size
    FROM (SELECT * FROM free WHERE first_at <= :now ORDER BY priority DESC, first_at LIMIT -1) AS f
    CROSS JOIN executions AS e INDEXED BY executions_waiting_at
    ON e.tenant = :tenant AND e.priority = f.priority AND e.endpoint = f.endpoint AND e.due_at <= :now
    CROSS JOIN jobs AS j ON j.id = e.job
    WHERE e.state IN ('QUEUED', 'RETRYING') AND e.held = 0
    LIMIT :limit))
WHERE bytes <= :bytes OR bytes = size;

-- name: claim
UPDATE executions
SET state = 'RUNNING', attempt = attempt + 1, token = token + 1, node = :node
WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: list_claimed
SELECT '[' || group_concat(
    rtrim(json_array(uuid_text(e.id), uuid_text(e.job), e.tenant, e.scheduled_at, e.trigger, e.priority, e.endpoint, e.attempt,
                     e.token), ']')
    || ',' || iif(e.cancel_requested, 'true', 'false') || ','
    || iif(j.size > 4608, '{"type":"large","spec":' || j.spec || '}', j.spec) || ']') || ']'
FROM json_each(:ids) AS i
CROSS JOIN executions AS e ON e.id = unhex(i.value, '-')
CROSS JOIN jobs AS j ON j.id = e.job;

-- name: list_to_stop
SELECT uuid_text(e.id)
FROM jsonb_each(:ids) AS i CROSS JOIN executions AS e ON e.id = unhex(i.value, '-')
WHERE e.cancel_requested = 1;

-- name: create_finishing
-- Differs from the PostgreSQL version in that the page is parsed once, into a table; PostgreSQL gets it as columns in
-- each statement.
-- The table has the page of a Finish for the three statements that read it. It is in memory, for this connection only.
CREATE TEMP TABLE finishing (
    execution BLOB, job BLOB, attempt INTEGER, token INTEGER, state TEXT, due_at INTEGER, started_at INTEGER,
    ended_at INTEGER, error_type TEXT, error_message TEXT, http_status INTEGER, response TEXT, dead INTEGER,
    exit_code INTEGER, reason TEXT
);

-- name: clear_finishing
DELETE FROM temp.finishing;

-- name: read_finishing
INSERT INTO temp.finishing
SELECT unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15
FROM jsonb_each(:ends);

-- name: finish_refused
SELECT uuid_text(f.execution), f.attempt, f.token
FROM temp.finishing AS f LEFT JOIN executions AS e ON e.id = f.execution
WHERE e.state IS NOT 'RUNNING' OR e.attempt <> f.attempt OR e.token <> f.token;

-- name: finish_executions
-- Differs from the PostgreSQL version in that it writes the whole page first, and refused rows are found after an undo
-- (`finish_refused`).
-- The fence: only the latest claim may write. The caller counts how many rows were written.
UPDATE executions
SET state = f.state, due_at = f.due_at, started_at = coalesce(executions.started_at, f.started_at),
    ended_at = CASE WHEN f.state NOT IN ('QUEUED', 'RETRYING')
                    THEN max(f.ended_at, coalesce(executions.started_at, 0)) END,
    dead = f.dead, reason = f.reason
FROM temp.finishing AS f
WHERE executions.id = f.execution AND executions.state = 'RUNNING'
  AND executions.attempt = f.attempt AND executions.token = f.token;

-- name: finish_attempts
-- An attempt belongs to the node or worker that held the claim. If it has started, its holder reports the end. If not,
-- another node may end it because the holder was lost: only then the holder is read, row by row.
INSERT INTO attempts (execution, attempt, node, started_at, ended_at, error_type, error_message, http_status, response,
                      exit_code)
SELECT execution, attempt,
       CASE WHEN started_at IS NULL THEN (SELECT node FROM executions AS e WHERE e.id = f.execution) ELSE :node END,
       started_at, ended_at, error_type, error_message, http_status, response, exit_code
FROM temp.finishing AS f
WHERE true
ON CONFLICT DO NOTHING;

-- name: count_completing
-- Differs from the PostgreSQL version in that it is a statement of its own: RETURNING knows no old values.
-- Returns by tenant how many jobs `finish_timers`, which follows, completes.
SELECT t.tenant, count(*)
FROM (SELECT DISTINCT job FROM temp.finishing WHERE state NOT IN ('QUEUED', 'RETRYING')) AS f
CROSS JOIN timers AS t ON t.job = f.job
WHERE t.due_at IS NULL AND t.status = 'PENDING' AND NOT EXISTS (
    SELECT 1 FROM executions AS e WHERE e.job = t.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING'))
GROUP BY t.tenant;

-- name: finish_timers
-- Differs from the PostgreSQL version in that it sums the ends of a job itself; PostgreSQL gets the sums from the
-- caller.
UPDATE timers
SET runs = timers.runs + f.runs, successes = timers.successes + f.successes,
    failures = timers.failures + f.failures, busy_ms = timers.busy_ms + f.busy_ms,
    last_run_at = f.last_run_at, last_state = f.last_state,
    last_success_at = iif(f.successes, f.last_run_at, timers.last_success_at),
    status = CASE WHEN due_at IS NULL AND status = 'PENDING' AND NOT EXISTS (
        SELECT 1 FROM executions AS e
        WHERE e.job = timers.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')) THEN 'COMPLETED' ELSE status END
FROM (
    SELECT job, sum(state <> 'SKIPPED') AS runs, sum(state = 'COMPLETED') AS successes, sum(state IN ('FAILED', 'TIMEOUT')) AS failures,
           coalesce(sum(max(ended_at - started_at, 0)), 0) AS busy_ms, max(ended_at) AS last_run_at, state AS last_state
    FROM temp.finishing
    WHERE state NOT IN ('QUEUED', 'RETRYING')
    GROUP BY job
) AS f
WHERE timers.job = f.job;

-- name: has_held
SELECT 1 FROM executions WHERE held = 1 LIMIT 1;

-- name: release_held
-- Releases the oldest held execution of each job of the page that has no other open execution.
UPDATE executions SET held = 0
WHERE id IN (
    SELECT (SELECT h.id FROM executions AS h WHERE h.held = 1 AND h.job = f.job ORDER BY h.scheduled_at, h.extra LIMIT 1)
    FROM (SELECT DISTINCT unhex(value, '-') AS job FROM jsonb_each(:jobs)) AS f
    WHERE NOT EXISTS (
        SELECT 1 FROM executions AS e
        WHERE e.job = f.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING') AND e.held = 0
          AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)));

-- name: release_claims
UPDATE executions SET state = 'QUEUED', attempt = executions.attempt - 1, due_at = :now, node = NULL
FROM (
    SELECT unhex(value ->> 0, '-') AS id, value ->> 1 AS attempt, value ->> 2 AS token FROM jsonb_each(:claims)
) AS r
WHERE executions.id = r.id AND executions.state = 'RUNNING'
  AND executions.attempt = r.attempt AND executions.token = r.token;

-- name: get_execution_state
SELECT state, uuid_text(job) FROM executions WHERE id = unhex(:id, '-') AND tenant = :tenant;

-- name: has_claim
-- Differs from the PostgreSQL version in that progress is a read and a write; PostgreSQL does both in `save_progress`.
SELECT 1 FROM executions
WHERE id = unhex(:id, '-') AND state = 'RUNNING' AND attempt = :attempt AND token = :token AND tenant = :tenant;

-- name: set_progress
INSERT INTO progress (execution, value) VALUES (unhex(:id, '-'), :value)
ON CONFLICT DO UPDATE SET value = excluded.value;

-- name: clear_progress
DELETE FROM progress WHERE execution = unhex(:id, '-');

-- name: set_reason
UPDATE executions SET reason = coalesce(reason, :reason) WHERE id = unhex(:execution, '-');

-- name: list_owners
SELECT uuid_text(id), owner FROM jobs WHERE id IN (SELECT unhex(value, '-') FROM json_each(:jobs));
