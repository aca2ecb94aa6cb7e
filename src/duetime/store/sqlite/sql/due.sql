-- Commands that create executions: fire, manual executions, redrive.

-- name: get_stale_epoch
-- Differs from the PostgreSQL version in that it finds the stale epoch itself; PostgreSQL locks all epochs, and the
-- caller compares them.
SELECT w.value ->> 0, w.value ->> 1, coalesce(s.epoch, 0)
FROM json_each(:epochs) AS w LEFT JOIN shard_epochs AS s ON s.shard = w.value ->> 0
WHERE s.epoch IS NOT w.value ->> 1
LIMIT 1;

-- name: fire_stale
SELECT m.value ->> 0
FROM jsonb_each(:moves) AS m LEFT JOIN timers AS t ON t.job = unhex(m.value ->> 0, '-')
WHERE t.due_at IS NOT m.value ->> 1 OR t.version IS NOT m.value ->> 2;

-- name: fire_timers
-- Moves only timers that are still as the plan read them; the caller counts how many moved.
UPDATE timers
SET due_at = m.next_due_at, fired = fired + m.executions
FROM (
    SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS due_at, value ->> 2 AS version, value ->> 3 AS next_due_at,
           value ->> 4 AS executions
    FROM jsonb_each(:moves)
) AS m
WHERE timers.job = m.job AND timers.due_at = m.due_at AND timers.version = m.version;

-- name: fire_overlapping
-- Differs from the PostgreSQL version in that overlaps are found by a query before the insert; PostgreSQL finds them in
-- `fire_executions`.
-- Returns executions whose job has another one open, or in this page.
SELECT r.value ->> 0
FROM jsonb_each(:executions) AS r
WHERE r.value ->> 7 <> 'run'
  AND (r.value ->> 8
       OR EXISTS (
           SELECT 1 FROM executions AS e
           WHERE e.job = unhex(r.value ->> 1, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
             -- A dead letter that was redriven at a rate, and is not due yet, does not count.
             AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)))
  -- An instant with a decision is left out: it may be this same execution.
  AND NOT EXISTS (
      SELECT 1 FROM executions AS d
      WHERE d.job = unhex(r.value ->> 1, '-') AND d.scheduled_at = r.value ->> 3 AND d.extra = 0);

-- name: list_open_of_page
-- Returns whether each job has an open execution, and how many are held, up to :most.
SELECT j.value,
       EXISTS (
           SELECT 1 FROM executions AS e
           WHERE e.job = unhex(j.value, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
             AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)),
       (SELECT count(*) FROM (
           SELECT 1 FROM executions AS h WHERE h.job = unhex(j.value, '-') AND h.held = 1 LIMIT :most))
FROM json_each(:jobs) AS j;

-- name: list_decided
SELECT r.value ->> 0
FROM jsonb_each(:executions) AS r
WHERE EXISTS (
    SELECT 1 FROM executions AS e
    WHERE e.job = unhex(r.value ->> 1, '-') AND e.scheduled_at = r.value ->> 3 AND e.extra = 0);

-- name: fire_executions
-- Differs from the PostgreSQL version in that an instant with an execution is left out, and the caller counts rows;
-- PostgreSQL refuses the page.
INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, reason, priority, endpoint, due_at, held,
                        attempt, token, node, ended_at)
SELECT unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3, 0, value ->> 4, :state, :reason,
       value ->> 5, value ->> 6, value ->> 3, :held, :attempt, :attempt, :node, :ended_at
FROM jsonb_each(:executions)
WHERE true
ON CONFLICT DO NOTHING;

-- name: count_reopened
-- Returns by tenant how many jobs `uncount_executions`, which follows, makes PENDING again.
SELECT t.tenant, count(*)
FROM (SELECT DISTINCT unhex(value ->> 0, '-') AS job FROM json_each(:jobs) WHERE value ->> 2 IS NOT NULL) AS u
JOIN timers AS t ON t.job = u.job
WHERE t.status = 'COMPLETED' AND t.recurs
GROUP BY t.tenant;

-- name: uncount_executions
-- Subtracts executions that do not count, by job. If they were to be the last, the job is due again, at `or_due_at`; a
-- paused job is due then when it is resumed. A job that no longer recurs, after a change, is not due again.
UPDATE timers
SET fired = max(0, fired - u.executions),
    due_at = CASE WHEN timers.status IN ('PENDING', 'COMPLETED') AND timers.recurs
                  THEN coalesce(timers.due_at, u.or_due_at) ELSE timers.due_at END,
    resume_at = CASE WHEN timers.status = 'PAUSED' AND timers.recurs
                     THEN coalesce(timers.resume_at, u.or_due_at) ELSE timers.resume_at END,
    status = CASE WHEN timers.status = 'COMPLETED' AND timers.recurs AND u.or_due_at IS NOT NULL
                  THEN 'PENDING' ELSE timers.status END
FROM (
    SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS executions, value ->> 2 AS or_due_at FROM json_each(:jobs)
) AS u
WHERE timers.job = u.job;

-- name: list_open_of_jobs
SELECT uuid_text(e.id), e.state
FROM json_each(:jobs) AS j
JOIN executions AS e ON e.job = unhex(j.value, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
WHERE NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at);

-- name: cancel_waiting_by_id
UPDATE executions SET state = 'CANCELLED', reason = :reason, ended_at = :now, held = 0
WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids)) AND state IN ('QUEUED', 'RETRYING');

-- name: get_job_for_execution
SELECT t.status, j.spec
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id = unhex(:job, '-') AND j.tenant = :tenant;

-- name: add_executions
-- Differs from the PostgreSQL version in that it looks for `extra` once a row; PostgreSQL looks once a job.
INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint, due_at, attempt, token)
SELECT unhex(r.value ->> 0, '-'), unhex(r.value ->> 1, '-'), :tenant, :now,
       row_number() OVER (PARTITION BY r.value ->> 1 ORDER BY r.key) + coalesce(
           (SELECT max(e.extra) FROM executions AS e WHERE e.job = unhex(r.value ->> 1, '-') AND e.scheduled_at = :now), 0),
       :trigger, 'QUEUED', r.value ->> 2, r.value ->> 3, r.value ->> 4, 0, 0
FROM json_each(:executions) AS r;

-- name: list_redrivable
-- Differs from the PostgreSQL version in that it leaves out CANCELLED jobs; PostgreSQL locks all of them first, and the
-- caller leaves them out.
-- The rows are in the order of the pairs: CROSS JOIN keeps it.
SELECT p.value ->> 0, p.value ->> 1, uuid_text(e.job), j.spec
FROM json_each(:pairs) AS p
CROSS JOIN executions AS e ON e.id = unhex(p.value ->> 0, '-')
CROSS JOIN timers AS t ON t.job = e.job
CROSS JOIN jobs AS j ON j.id = e.job
WHERE e.dead = 1 AND e.tenant = :tenant AND t.status <> 'CANCELLED';

-- name: clear_dead
UPDATE executions SET dead = 0 WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids));
