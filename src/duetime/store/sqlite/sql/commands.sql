-- Blocks begin with `-- name:`. A page of rows comes in as one JSON parameter and is read with jsonb_each: one call into
-- SQLite a page, so that Python's lock is given up once and not once a row. (With another thread busy, executemany
-- wrote 470 rows/s here, the same rows as one page 76,000. json_each would print each row and parse it again.)

-- name: create_jobs
INSERT INTO jobs (id, tenant, key, name, type, owner, created_at, updated_at, size, spec)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 6,
       value ->> 7, value -> 8
FROM jsonb_each(:jobs);

-- name: create_timers
INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, 'PENDING', 1, value ->> 3, value ->> 4
FROM jsonb_each(:timers);

-- name: get_idempotency_key
SELECT fingerprint, response FROM idempotency_keys WHERE tenant = :tenant AND key = :key;

-- name: add_idempotency_key
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
SELECT j.tenant, j.size FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE j.id = unhex(:job, '-') AND t.version = :version;

-- name: reencrypt
UPDATE jobs SET size = :size, spec = :spec WHERE id = unhex(:job, '-');

-- name: change_timer
UPDATE timers
SET version = version + 1, recurs = :recurs, status = :status, fired = CASE WHEN :restart THEN 0 ELSE fired END,
    due_at = CASE WHEN :status = 'PENDING' THEN :due_at END,
    resume_at = CASE WHEN :status = 'PAUSED' THEN :due_at END
WHERE job = unhex(:job, '-');

-- name: keep_timer
UPDATE timers SET version = version + 1 WHERE job = unhex(:job, '-');

-- name: set_timer
UPDATE timers SET status = :status, version = version + 1, due_at = :due_at, resume_at = :resume_at
WHERE job = unhex(:job, '-');

-- name: touch_job
UPDATE jobs SET updated_at = :now WHERE id = unhex(:job, '-');

-- name: set_pause
UPDATE jobs SET paused_by = :by, paused_at = :at, pause_reason = :reason, updated_at = :now WHERE id = unhex(:job, '-');

-- Where a state is asked for, the three that executions_open holds are named too: SQLite uses a partial index only where
-- its own condition stands in the query. INDEXED BY makes a query that can't use it fail rather than crawl.

-- name: cancel_waiting
-- (Without an instant, for rows that are about to be removed: they end when they were due.)
UPDATE executions INDEXED BY executions_open
SET state = 'CANCELLED', reason = 'cancelled', ended_at = coalesce(:now, due_at), held = 0
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state IN ('QUEUED', 'RETRYING');

-- name: request_cancel_of_running
UPDATE executions INDEXED BY executions_open SET cancel_requested = 1
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state = 'RUNNING';

-- name: list_running_of_job
SELECT uuid_text(id) FROM executions INDEXED BY executions_open
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state = 'RUNNING';

-- name: count_waiting_of_job
SELECT state, count(*) FROM executions INDEXED BY executions_open
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state IN ('QUEUED', 'RETRYING')
GROUP BY state;

-- name: list_purgeable
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
    SELECT id FROM executions INDEXED BY executions_instant WHERE job = unhex(:job, '-') LIMIT :limit);

-- name: purge_skips
DELETE FROM skips WHERE job = unhex(:job, '-');

-- name: purge_timer
DELETE FROM timers WHERE job = unhex(:job, '-');

-- name: purge_job
DELETE FROM jobs WHERE id = unhex(:job, '-');

-- name: get_node
SELECT ended_at IS NULL FROM nodes WHERE id = :node;

-- name: get_stale_epoch
SELECT w.value ->> 0, w.value ->> 1, coalesce(s.epoch, 0)
FROM json_each(:epochs) AS w LEFT JOIN shard_epochs AS s ON s.shard = w.value ->> 0
WHERE s.epoch IS NOT w.value ->> 1
LIMIT 1;

-- name: get_later_epoch
SELECT w.value ->> 0, w.value ->> 1, s.epoch
FROM json_each(:shards) AS w JOIN shard_epochs AS s ON s.shard = w.value ->> 0
WHERE s.epoch > w.value ->> 1 OR s.epoch = w.value ->> 1 AND s.node <> :node
LIMIT 1;

-- name: fence_shards
INSERT INTO shard_epochs (shard, epoch, node)
SELECT value ->> 0, value ->> 1, :node FROM json_each(:shards) WHERE true
ON CONFLICT DO UPDATE SET epoch = excluded.epoch, node = excluded.node;

-- name: fire_stale
SELECT m.value ->> 0
FROM jsonb_each(:moves) AS m LEFT JOIN timers AS t ON t.job = unhex(m.value ->> 0, '-')
WHERE t.due_at IS NOT m.value ->> 1 OR t.version IS NOT m.value ->> 2;

-- name: fire_overlapping
-- Runs whose job has an execution open, or another run in this page.
SELECT r.value ->> 0
FROM jsonb_each(:runs) AS r
WHERE r.value ->> 7 <> 'run'
  AND (r.value ->> 8
       OR EXISTS (
           SELECT 1 FROM executions AS e
           WHERE e.job = unhex(r.value ->> 1, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
             -- A dead letter that was driven again at a pace, and waits for its turn, does not hold up the timetable.
             AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)))
  -- An instant that was decided before overlaps nothing: least of all itself.
  AND NOT EXISTS (
      SELECT 1 FROM executions AS d
      WHERE d.job = unhex(r.value ->> 1, '-') AND d.scheduled_at = r.value ->> 3 AND d.extra = 0);

-- name: list_open_of_page
-- What each of these jobs has open, and how many of its executions are held, up to a bound.
SELECT j.value,
       EXISTS (
           SELECT 1 FROM executions AS e
           WHERE e.job = unhex(j.value, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
             AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)),
       (SELECT count(*) FROM (
           SELECT 1 FROM executions AS h WHERE h.job = unhex(j.value, '-') AND h.held = 1 LIMIT :most))
FROM json_each(:jobs) AS j;

-- name: fire_decided
SELECT r.value ->> 0
FROM jsonb_each(:runs) AS r
WHERE EXISTS (
    SELECT 1 FROM executions AS e
    WHERE e.job = unhex(r.value ->> 1, '-') AND e.scheduled_at = r.value ->> 3 AND e.extra = 0);

-- name: fire_runs
INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, reason, priority, endpoint, due_at, held,
                        attempt, token, node, ended_at)
SELECT unhex(value ->> 0, '-'), unhex(value ->> 1, '-'), value ->> 2, value ->> 3, 0, value ->> 4, :state, :reason,
       value ->> 5, value ->> 6, value ->> 3, :held, :attempt, :attempt, :node, :ended_at
FROM jsonb_each(:runs)
WHERE true
ON CONFLICT DO NOTHING;

-- name: fire_timers
-- Moves only timers that are still as the plan read them; the caller counts how many moved.
UPDATE timers
SET due_at = m.next_due_at, fired = fired + m.runs,
    status = CASE WHEN m.next_due_at IS NULL AND m.runs = 0 AND NOT EXISTS (
        SELECT 1 FROM executions AS e
        WHERE e.job = timers.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')) THEN 'COMPLETED' ELSE status END
FROM (
    SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS due_at, value ->> 2 AS version, value ->> 3 AS next_due_at,
           value ->> 4 AS runs
    FROM jsonb_each(:moves)
) AS m
WHERE timers.job = m.job AND timers.due_at = m.due_at AND timers.version = m.version;

-- name: uncount_runs
-- Runs of the page that were not to count, by job; where they were to be the last, the job is due again. One that is
-- paused is when it is resumed; one that was changed meanwhile, so that it has one run only, is not.
UPDATE timers
SET fired = max(0, fired - u.runs),
    due_at = CASE WHEN timers.status IN ('PENDING', 'COMPLETED') AND timers.recurs
                  THEN coalesce(timers.due_at, u.or_due_at) ELSE timers.due_at END,
    resume_at = CASE WHEN timers.status = 'PAUSED' AND timers.recurs
                     THEN coalesce(timers.resume_at, u.or_due_at) ELSE timers.resume_at END,
    status = CASE WHEN timers.status = 'COMPLETED' AND timers.recurs AND u.or_due_at IS NOT NULL
                  THEN 'PENDING' ELSE timers.status END
FROM (
    SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS runs, value ->> 2 AS or_due_at FROM json_each(:jobs)
) AS u
WHERE timers.job = u.job;

-- name: complete_jobs
-- Jobs of the page that have no run left and nothing open.
UPDATE timers SET status = 'COMPLETED'
WHERE job IN (SELECT unhex(value, '-') FROM jsonb_each(:jobs)) AND status = 'PENDING' AND due_at IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM executions AS e WHERE e.job = timers.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING'));

-- name: add_skips
INSERT INTO skips (job, tenant, first_at, until_at, count, reason, decided_at)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, :now
FROM json_each(:skips)
WHERE true
ON CONFLICT DO NOTHING;

-- name: list_open_of_jobs
SELECT uuid_text(e.id), e.state
FROM json_each(:jobs) AS j
JOIN executions AS e ON e.job = unhex(j.value, '-') AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING')
WHERE NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at);

-- name: request_cancel
UPDATE executions SET cancel_requested = 1
WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids)) AND state = 'RUNNING';

-- name: cancel_waiting_by_id
UPDATE executions SET state = 'CANCELLED', reason = :reason, ended_at = :now, held = 0
WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids)) AND state IN ('QUEUED', 'RETRYING');

-- name: get_job_for_run
SELECT t.status, j.spec
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id = unhex(:job, '-') AND j.tenant = :tenant;

-- name: add_runs
INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint, due_at, attempt, token)
SELECT unhex(r.value ->> 0, '-'), unhex(r.value ->> 1, '-'), :tenant, :now,
       row_number() OVER (PARTITION BY r.value ->> 1 ORDER BY r.key) + coalesce(
           (SELECT max(e.extra) FROM executions AS e WHERE e.job = unhex(r.value ->> 1, '-') AND e.scheduled_at = :now), 0),
       :trigger, 'QUEUED', r.value ->> 2, r.value ->> 3, r.value ->> 4, 0, 0
FROM json_each(:runs) AS r;

-- name: list_claimable
-- Of one tenant. A probe for each priority: the index then hands out what is due in order, and never walks over what is not.
-- As many as hold :bytes together, but one at least.
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

-- name: is_worker_of_another
SELECT 1 FROM workers WHERE node = :node AND tenant <> :tenant;

-- name: list_claimable_only
-- What needs one of these endpoints: a probe for each and each priority.
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
-- The same, but for endpoints that are full: what waits for those may be most of what there is, and is not walked over.
-- One probe finds the next endpoint of a priority, one the instant its first is due at. Highest priority first; within
-- it the endpoint whose first has waited longest gives all it can. (LIMIT -1: else SQLite drops the order.) No more than
-- :most endpoints are looked at: a tenant that has more delays itself.
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
-- The page of a Finish, parsed once for the three statements that read it. In memory, and of this connection only.
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
FROM jsonb_each(:attempts);

-- name: finish_refused
SELECT uuid_text(f.execution), f.attempt, f.token
FROM temp.finishing AS f LEFT JOIN executions AS e ON e.id = f.execution
WHERE e.state IS NOT 'RUNNING' OR e.attempt <> f.attempt OR e.token <> f.token;

-- name: finish_executions
-- The fence: only the claim that is still the latest may write. The caller counts how many were written.
UPDATE executions
SET state = f.state, due_at = f.due_at, started_at = coalesce(executions.started_at, f.started_at),
    ended_at = CASE WHEN f.state NOT IN ('QUEUED', 'RETRYING')
                    THEN max(f.ended_at, coalesce(executions.started_at, 0)) END,
    dead = f.dead, reason = f.reason
FROM temp.finishing AS f
WHERE executions.id = f.execution AND executions.state = 'RUNNING'
  AND executions.attempt = f.attempt AND executions.token = f.token;

-- name: finish_attempts
-- An attempt belongs to the node or worker that held the claim. One that has started is reported by its holder. One that
-- has not may be ended by another node, because its holder was lost: only then is the holder looked up, row by row.
INSERT INTO attempts (execution, attempt, node, started_at, ended_at, error_type, error_message, http_status, response,
                      exit_code)
SELECT execution, attempt,
       CASE WHEN started_at IS NULL THEN (SELECT node FROM executions AS e WHERE e.id = f.execution) ELSE :node END,
       started_at, ended_at, error_type, error_message, http_status, response, exit_code
FROM temp.finishing AS f
WHERE true
ON CONFLICT DO NOTHING;

-- name: finish_timers
UPDATE timers
SET runs = timers.runs + f.runs, successes = timers.successes + f.successes,
    failures = timers.failures + f.failures, busy_ms = timers.busy_ms + f.busy_ms,
    last_run_at = f.last_run_at, last_state = f.last_state,
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
-- The oldest held execution of each job of the page that has no other open execution left may run.
UPDATE executions SET held = 0
WHERE id IN (
    SELECT (SELECT h.id FROM executions AS h WHERE h.held = 1 AND h.job = f.job ORDER BY h.scheduled_at, h.extra LIMIT 1)
    FROM (SELECT DISTINCT unhex(value, '-') AS job FROM jsonb_each(:jobs)) AS f
    WHERE NOT EXISTS (
        SELECT 1 FROM executions AS e
        WHERE e.job = f.job AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING') AND e.held = 0
          AND NOT (e.state = 'QUEUED' AND e.trigger = 'retry' AND e.attempt = 0 AND e.due_at > e.scheduled_at)));

-- name: release_runs
UPDATE executions SET state = 'QUEUED', attempt = executions.attempt - 1, due_at = :now, node = NULL
FROM (
    SELECT unhex(value ->> 0, '-') AS id, value ->> 1 AS attempt, value ->> 2 AS token FROM jsonb_each(:runs)
) AS r
WHERE executions.id = r.id AND executions.state = 'RUNNING'
  AND executions.attempt = r.attempt AND executions.token = r.token;

-- name: get_execution_state
SELECT state, uuid_text(job) FROM executions WHERE id = unhex(:id, '-') AND tenant = :tenant;

-- name: list_redrivable
-- In the order of the pairs: CROSS JOIN keeps it.
SELECT p.value ->> 0, p.value ->> 1, uuid_text(e.job), j.spec
FROM json_each(:pairs) AS p
CROSS JOIN executions AS e ON e.id = unhex(p.value ->> 0, '-')
CROSS JOIN timers AS t ON t.job = e.job
CROSS JOIN jobs AS j ON j.id = e.job
WHERE e.dead = 1 AND e.tenant = :tenant AND t.status <> 'CANCELLED';

-- name: clear_dead
UPDATE executions SET dead = 0 WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: void_nodes
UPDATE nodes SET ended_at = :now WHERE name = :name AND ended_at IS NULL;

-- name: start_node
INSERT INTO nodes (name, started_at) VALUES (:name, :now) RETURNING id;

-- name: stop_node
UPDATE nodes SET ended_at = :now WHERE id = :node;

-- name: end_nodes
UPDATE nodes SET ended_at = :now WHERE id IN (SELECT value FROM json_each(:nodes)) AND ended_at IS NULL;

-- name: end_workers
DELETE FROM workers WHERE node IN (SELECT value FROM json_each(:nodes));

-- name: end_silent_workers
DELETE FROM workers WHERE (node, beats) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:workers)) RETURNING node;

-- name: count_workers
SELECT count(*), coalesce(sum(octet_length(functions)), 0) FROM workers WHERE tenant = :tenant;

-- name: add_worker
INSERT INTO workers (node, tenant, user_id, name, functions, slots, started_at, seen_at)
VALUES (:node, :tenant, :user_id, :name, :functions, :slots, :now, :now);

-- name: beat_workers
UPDATE workers SET seen_at = :now, beats = beats + 1 WHERE node IN (SELECT value FROM json_each(:workers))
RETURNING node;

-- name: has_claim
SELECT 1 FROM executions
WHERE id = unhex(:id, '-') AND state = 'RUNNING' AND attempt = :attempt AND token = :token AND tenant = :tenant;

-- name: set_progress
INSERT INTO progress (execution, value) VALUES (unhex(:id, '-'), :value)
ON CONFLICT DO UPDATE SET value = excluded.value;

-- name: clear_progress
DELETE FROM progress WHERE execution = unhex(:id, '-');

-- name: list_prunable
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
    SELECT id FROM executions
    WHERE id < unhex(:before, '-') AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING')
    ORDER BY id LIMIT :limit);

-- name: list_to_trim
SELECT uuid_text(id), state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') AND dead = 0 FROM executions
WHERE tenant = :tenant AND tenant <> 'default' AND id > unhex(:after, '-') ORDER BY id LIMIT :look;

-- name: list_to_trim_of_default
-- (The index by tenant leaves this tenant out: mostly there is no other, and the ids alone are the order.)
SELECT uuid_text(id), tenant = 'default' AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') AND dead = 0 FROM executions
WHERE id > unhex(:after, '-') ORDER BY id LIMIT :look;

-- name: list_dead_to_trim
SELECT uuid_text(id) FROM executions INDEXED BY executions_dead
WHERE tenant = :tenant AND dead = 1 AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') ORDER BY id LIMIT :number;

-- name: count_states
SELECT tenant, state, count(*)
FROM json_each(:ids) AS i CROSS JOIN executions AS e ON e.id = unhex(i.value, '-')
GROUP BY 1, 2;

-- name: remove_attempts
DELETE FROM attempts WHERE execution IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: remove_progress
DELETE FROM progress WHERE execution IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: remove_executions
DELETE FROM executions WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: prune_skips
DELETE FROM skips WHERE (job, first_at) IN (SELECT job, first_at FROM skips WHERE until_at < :before LIMIT :limit);

-- name: prune_nodes
DELETE FROM nodes WHERE id IN (
    SELECT id FROM nodes INDEXED BY nodes_ended WHERE ended_at < :before ORDER BY ended_at LIMIT :limit);

-- name: prune_api_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys INDEXED BY api_keys_over
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND coalesce(min(revoked_at, expires_at), revoked_at, expires_at) < :before
    LIMIT :limit);

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys
WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys WHERE created_at < :before LIMIT :limit);

-- name: add_to_counter
INSERT INTO counters (tenant, name, value) VALUES (:tenant, :name, :delta)
ON CONFLICT DO UPDATE SET value = value + excluded.value;

-- name: add_to_loads
-- Returns what a tenant holds then, and all of them together: reading it apart would cost as much as adding to it.
INSERT INTO counters (tenant, name, value)
VALUES (:tenant, 'jobs', :jobs), (:tenant, 'bytes', :bytes), ('', 'jobs', :jobs), ('', 'bytes', :bytes)
ON CONFLICT DO UPDATE SET value = value + excluded.value
RETURNING tenant, name, value;

-- name: get_limit
SELECT full_at FROM limits WHERE tenant = :tenant AND user_id = :user_id AND name = :name;

-- name: set_limit
INSERT INTO limits (tenant, user_id, name, full_at) VALUES (:tenant, :user_id, :name, :full_at)
ON CONFLICT DO UPDATE SET full_at = excluded.full_at;

-- name: add_key
INSERT INTO api_keys (id, tenant, user_id, name, role, tier, scopes, secret_hash, created_at, created_by, expires_at)
VALUES (:id, :tenant, :user_id, :name, :role, :tier, :scopes, :secret_hash, :now, :created_by, :expires_at);

-- name: count_keys
-- Those that are neither revoked nor expired, whose they are, and whether this user is one of them.
SELECT count(*), count(DISTINCT user_id), coalesce(max(user_id = :user_id), 0) FROM api_keys
WHERE tenant = :tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: remove_ended_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys WHERE tenant = :tenant AND (revoked_at IS NOT NULL OR expires_at <= :now)
    ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET :kept);

-- name: get_signing_state
SELECT tenant, version, previous_until, rotated_at, rotated_by FROM signing_keys WHERE tenant = :tenant;

-- name: put_signing_state
INSERT INTO signing_keys (tenant, version, previous_until, rotated_at, rotated_by)
VALUES (:tenant, :version, :previous_until, :rotated_at, :rotated_by)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, previous_until = excluded.previous_until,
    rotated_at = excluded.rotated_at, rotated_by = excluded.rotated_by;

-- name: get_revoked
SELECT revoked_at FROM api_keys WHERE id = :id AND tenant = :tenant;

-- name: revoke_key
UPDATE api_keys SET revoked_at = :now WHERE id = :id;

-- name: touch_keys
UPDATE api_keys SET last_used_at = :now WHERE id IN (SELECT value FROM json_each(:ids));

-- name: count_subscriptions
SELECT count(*) FROM subscriptions WHERE tenant = :tenant;

-- name: add_subscription
INSERT INTO subscriptions (id, tenant, url, events, created_at, created_by)
VALUES (:id, :tenant, :url, :events, :now, :created_by);

-- name: remove_subscription
DELETE FROM subscriptions WHERE id = :id AND tenant = :tenant RETURNING url;

-- name: count_connections
SELECT count(*), coalesce(max(name = :name), 0) FROM connections WHERE tenant = :tenant;

-- name: put_connection
INSERT INTO connections (tenant, name, url, shown, created_at, created_by)
VALUES (:tenant, :name, :url, :shown, :now, :created_by)
ON CONFLICT DO UPDATE SET url = excluded.url, shown = excluded.shown, created_at = excluded.created_at,
                          created_by = excluded.created_by;

-- name: remove_connection
DELETE FROM connections WHERE tenant = :tenant AND name = :name RETURNING shown;

-- name: reencrypt_connection
UPDATE connections SET url = :new WHERE tenant = :tenant AND name = :name AND url = :old RETURNING name;

-- name: get_last_link
-- (Of a chain that was pruned as a whole, the checkpoint.)
SELECT link, hash FROM (
    SELECT * FROM (SELECT link, hash FROM audit_links ORDER BY link DESC LIMIT 1)
    UNION ALL SELECT link, hash FROM audit_checkpoints WHERE chain = -1)
ORDER BY link DESC LIMIT 1;

-- name: get_audit_link
SELECT lower(hex(hash)) FROM audit_links WHERE link = :link;

-- name: get_audit_checkpoint
SELECT link FROM audit_checkpoints WHERE chain = :chain;

-- name: prune_audit_links
DELETE FROM audit_links WHERE link <= :link;

-- name: prune_audit
DELETE FROM audit WHERE number < (:link + 1) << 20;

-- name: set_audit_checkpoint
INSERT INTO audit_checkpoints (chain, link, hash, at) VALUES (:chain, :link, unhex(:hash), :now)
ON CONFLICT DO UPDATE SET link = excluded.link, hash = excluded.hash, at = excluded.at;

-- name: add_audit_link
INSERT INTO audit_links (link, hash) VALUES (:link, :hash);

-- name: add_audit
INSERT INTO audit (number, tenant, resource, entry)
SELECT (:link << 20) + key, value ->> 0, value ->> 1, value ->> 2 FROM json_each(:entries);

-- name: list_ended
-- Which of these ends are how their executions ended.
SELECT p.key FROM json_each(:ends) AS p CROSS JOIN executions AS e ON e.id = unhex(p.value ->> 3, '-')
WHERE e.attempt = p.value ->> 4 AND e.token = p.value ->> 5 AND e.state = p.value ->> 6;

-- name: get_circuits
SELECT id, tenant, url, failures, opened_at, next_probe_at, probe FROM circuits
WHERE id IN (SELECT value FROM json_each(:circuits));

-- name: count_change_of_circuits
UPDATE circuit_changes SET last = last + 1;

-- name: set_circuits
INSERT INTO circuits (id, tenant, url, failures, opened_at, next_probe_at, probe, touched_at, changed)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, :now,
       (SELECT last FROM circuit_changes)
FROM json_each(:circuits) WHERE true
ON CONFLICT DO UPDATE SET failures = excluded.failures, opened_at = excluded.opened_at,
    next_probe_at = excluded.next_probe_at, probe = excluded.probe, touched_at = excluded.touched_at,
    changed = excluded.changed;

-- name: close_circuits
-- They stay without failures, so that those who know them learn of it.
UPDATE circuits
SET failures = 0, opened_at = NULL, next_probe_at = NULL, probe = NULL, touched_at = :now,
    changed = (SELECT last FROM circuit_changes)
WHERE id IN (SELECT value FROM json_each(:circuits));

-- name: count_circuits
-- Of each of these tenants, up to a bound.
SELECT t.value, (SELECT count(*) FROM (SELECT 1 FROM circuits AS c WHERE c.tenant = t.value LIMIT :most))
FROM json_each(:tenants) AS t;

-- name: forget_circuits
-- So many of a tenant's: the closed ones first, of these what was touched longest ago.
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE tenant = :tenant
    ORDER BY opened_at IS NULL DESC, touched_at, id DESC LIMIT :limit)
RETURNING id;

-- name: prune_circuits
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE touched_at < :before ORDER BY touched_at LIMIT :limit);
