-- Commands on executions: claim, finish, release, cancel, progress.

-- name: claim
-- Of each tenant up to :each, and as many as have :bytes together, but at least one. One probe for each priority: then the
-- index returns the due executions in order, and reads no others.
WITH alive AS MATERIALIZED (SELECT id FROM nodes WHERE id = :node::integer AND ended_at IS NULL FOR SHARE),
picked AS MATERIALIZED (
    SELECT w.*
    FROM alive CROSS JOIN unnest(:tenants::text[]) AS t (tenant)
    CROSS JOIN LATERAL (
        SELECT v.* FROM generate_series(9, 0, -1) AS p (priority)
        CROSS JOIN LATERAL (
            SELECT o.job, o.execution, o.state, o.due_at, o.tenant, o.priority FROM open_runs AS o
            WHERE o.tenant = t.tenant AND o.priority = p.priority::smallint AND o.due_at <= :now::bigint
              AND o.state <> 'RUNNING' AND NOT o.held AND o.endpoint >= 0
            ORDER BY o.due_at LIMIT :each::bigint FOR UPDATE SKIP LOCKED) AS v
        LIMIT :each::bigint) AS w
    LIMIT :limit::bigint
),
fit AS MATERIALIZED (
    SELECT s.* FROM (
        SELECT p.*, j.size, sum(j.size) OVER (PARTITION BY p.tenant ORDER BY p.priority DESC, p.due_at, p.execution
                                              ROWS UNBOUNDED PRECEDING) AS bytes
        FROM picked AS p JOIN jobs AS j ON j.id = p.job) AS s
    WHERE s.bytes <= :bytes::bigint OR s.bytes = s.size
),
claimed AS (
    UPDATE open_runs AS o SET state = 'RUNNING', attempt = o.attempt + 1, token = o.token + 1, node = :node::integer
    FROM fit AS p WHERE o.job = p.job AND o.execution = p.execution
    RETURNING o.*, p.state AS was
)
SELECT EXISTS (SELECT 1 FROM alive) AS is_alive, (
    SELECT '[' || string_agg(
        rtrim(json_build_array(c.execution, c.job, c.tenant, c.scheduled_at, c.trigger, c.priority, c.endpoint, c.attempt,
                               c.token, c.cancel_requested)::text, ']') || ','
        || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END || ']',
        ',' ORDER BY c.priority DESC, c.due_at, c.execution) || ']'
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS claims, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: claim_only
-- The same for the endpoints :only, with one probe for each endpoint and priority. A worker of another tenant counts as
-- not alive, whatever its endpoints are.
WITH alive AS MATERIALIZED (
    SELECT n.id FROM nodes AS n
    WHERE n.id = :node::integer AND n.ended_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM workers AS w WHERE w.node = n.id AND w.tenant <> :tenant::text)
    FOR SHARE
),
picked AS MATERIALIZED (
    SELECT w.*
    FROM (SELECT p.priority, n.endpoint
          FROM alive CROSS JOIN generate_series(9, 0, -1) AS p (priority) CROSS JOIN unnest(:only::bigint[]) AS n (endpoint)
          ORDER BY p.priority DESC) AS q
    CROSS JOIN LATERAL (
        SELECT o.job, o.execution, o.state, o.due_at, o.tenant, o.priority FROM open_runs AS o
        WHERE o.tenant = :tenant::text AND o.priority = q.priority::smallint AND o.endpoint = q.endpoint
          AND o.due_at <= :now::bigint AND o.state <> 'RUNNING' AND NOT o.held
        ORDER BY o.due_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED) AS w
    LIMIT :limit::bigint
),
fit AS MATERIALIZED (
    SELECT s.* FROM (
        SELECT p.*, j.size, sum(j.size) OVER (PARTITION BY p.tenant ORDER BY p.priority DESC, p.due_at, p.execution
                                              ROWS UNBOUNDED PRECEDING) AS bytes
        FROM picked AS p JOIN jobs AS j ON j.id = p.job) AS s
    WHERE s.bytes <= :bytes::bigint OR s.bytes = s.size
),
claimed AS (
    UPDATE open_runs AS o SET state = 'RUNNING', attempt = o.attempt + 1, token = o.token + 1, node = :node::integer
    FROM fit AS p WHERE o.job = p.job AND o.execution = p.execution
    RETURNING o.*, p.state AS was
)
SELECT EXISTS (SELECT 1 FROM alive) AS is_alive, (
    SELECT '[' || string_agg(
        rtrim(json_build_array(c.execution, c.job, c.tenant, c.scheduled_at, c.trigger, c.priority, c.endpoint, c.attempt,
                               c.token, c.cancel_requested)::text, ']') || ','
        || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END || ']',
        ',' ORDER BY c.priority DESC, c.due_at, c.execution) || ']'
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS claims, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: claim_beside
-- The same without the endpoints :full: most executions may wait for these, and they are not read. One probe finds the
-- next endpoint of a priority, another one when its first execution is due. Highest priority first; within a priority,
-- all executions of the endpoint that has waited longest. At most :most endpoints are read: a tenant that has more delays
-- only itself.
WITH RECURSIVE queue (priority, endpoint) AS (
    SELECT p.priority::smallint, (SELECT min(o.endpoint) FROM open_runs AS o
                                  WHERE o.tenant = :tenant::text AND o.priority = p.priority::smallint
                                    AND o.endpoint >= 0 AND o.state <> 'RUNNING' AND NOT o.held)
    FROM generate_series(9, 0, -1) AS p (priority)
    UNION ALL
    SELECT q.priority, (SELECT min(o.endpoint) FROM open_runs AS o
                        WHERE o.tenant = :tenant::text AND o.priority = q.priority AND o.endpoint > q.endpoint
                          AND o.state <> 'RUNNING' AND NOT o.held)
    FROM queue AS q WHERE q.endpoint IS NOT NULL
),
looked_at AS MATERIALIZED (SELECT priority, endpoint FROM queue LIMIT :most::bigint),
free AS MATERIALIZED (
    SELECT q.priority, q.endpoint, (SELECT min(o.due_at) FROM open_runs AS o
                                    WHERE o.tenant = :tenant::text AND o.priority = q.priority
                                      AND o.endpoint = q.endpoint AND o.state <> 'RUNNING' AND NOT o.held) AS first_at
    FROM looked_at AS q
    WHERE q.endpoint IS NOT NULL AND q.endpoint <> ALL (:full::bigint[])
),
alive AS MATERIALIZED (SELECT id FROM nodes WHERE id = :node::integer AND ended_at IS NULL FOR SHARE),
picked AS MATERIALIZED (
    SELECT w.*
    FROM (SELECT f.* FROM free AS f, alive WHERE f.first_at <= :now::bigint ORDER BY f.priority DESC, f.first_at) AS f
    CROSS JOIN LATERAL (
        SELECT o.job, o.execution, o.state, o.due_at, o.tenant, o.priority FROM open_runs AS o
        WHERE o.tenant = :tenant::text AND o.priority = f.priority AND o.endpoint = f.endpoint
          AND o.due_at <= :now::bigint AND o.state <> 'RUNNING' AND NOT o.held
        ORDER BY o.due_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED) AS w
    LIMIT :limit::bigint
),
fit AS MATERIALIZED (
    SELECT s.* FROM (
        SELECT p.*, j.size, sum(j.size) OVER (PARTITION BY p.tenant ORDER BY p.priority DESC, p.due_at, p.execution
                                              ROWS UNBOUNDED PRECEDING) AS bytes
        FROM picked AS p JOIN jobs AS j ON j.id = p.job) AS s
    WHERE s.bytes <= :bytes::bigint OR s.bytes = s.size
),
claimed AS (
    UPDATE open_runs AS o SET state = 'RUNNING', attempt = o.attempt + 1, token = o.token + 1, node = :node::integer
    FROM fit AS p WHERE o.job = p.job AND o.execution = p.execution
    RETURNING o.*, p.state AS was
)
SELECT EXISTS (SELECT 1 FROM alive) AS is_alive, (
    SELECT '[' || string_agg(
        rtrim(json_build_array(c.execution, c.job, c.tenant, c.scheduled_at, c.trigger, c.priority, c.endpoint, c.attempt,
                               c.token, c.cancel_requested)::text, ']') || ','
        || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END || ']',
        ',' ORDER BY c.priority DESC, c.due_at, c.execution) || ']'
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS claims, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: finish_timers
-- A finish is two statements. This first one writes the timers and so locks them: a separate lock would write each timer
-- twice. It assumes that every row will be accepted and that the jobs have no other open execution; the second statement
-- checks that. (Executions that are tried again add nothing and have no `last_state`, but their timers are locked. For
-- skipped ones, `runs` is 0 and `last_state` is not NULL: the job may have ended.)
WITH counted AS (
    UPDATE timers AS t
    SET runs = t.runs + p.runs, successes = t.successes + p.successes, failures = t.failures + p.failures,
        busy_ms = t.busy_ms + p.busy_ms, last_run_at = coalesce(p.last_run_at, t.last_run_at),
        last_state = coalesce(p.last_state, t.last_state),
        status = CASE WHEN t.due_at IS NULL AND t.status = 'PENDING' AND p.last_state IS NOT NULL THEN 'COMPLETED' ELSE t.status END
    FROM (SELECT u.job, o.status AS was, coalesce(u.runs, :same_runs::integer) AS runs, coalesce(u.successes, :same_successes::integer) AS successes,
                 coalesce(u.failures, :same_failures::integer) AS failures, coalesce(u.busy_ms, :same_busy_ms::bigint) AS busy_ms,
                 coalesce(u.last_run_at, :same_last_run_ats::bigint) AS last_run_at,
                 coalesce(u.last_state, :same_last_states::text) AS last_state
          FROM unnest(:jobs::uuid[], :runs::integer[], :successes::integer[], :failures::integer[], :busy_ms::bigint[],
                      :last_run_ats::bigint[], :last_states::text[])
               AS u (job, runs, successes, failures, busy_ms, last_run_at, last_state)
          JOIN timers AS o ON o.job = u.job
          ORDER BY u.job) AS p
    -- `was` is from the statement's snapshot: a row whose status another transaction has changed since is not written, and
    -- the page takes the slow path. (IS TRUE keeps the planner from a join by status.)
    WHERE t.job = p.job AND (t.status = p.was) IS TRUE
    RETURNING t.tenant, t.due_at IS NULL AND t.status = 'COMPLETED' AS is_completed, t.status <> p.was AS is_new
),
completed AS (SELECT tenant, count(*) AS number FROM counted WHERE is_new GROUP BY tenant)
SELECT count(*) AS counted, coalesce(bool_or(is_completed), false) AS any_completed,
       (SELECT json_object_agg(tenant, number)::text FROM completed) AS completed
FROM counted;

-- name: end_executions
-- The fence: only the latest claim may write.
-- An attempt belongs to the holder of its claim, also if another node ends it because the holder was lost.
-- The statement before has locked the timers, so the open executions of these jobs do not change.
WITH gone AS (
    DELETE FROM open_runs AS o
    USING unnest(:ids::uuid[], :jobs::uuid[], :attempts::integer[], :tokens::integer[], :states::text[],
                 :due_ats::bigint[], :started_ats::bigint[], :ended_ats::bigint[], :error_types::text[],
                 :error_messages::text[], :http_statuses::integer[], :responses::text[], :deads::boolean[],
                 :exit_codes::integer[], :reasons::text[])
          AS p (id, job, attempt, token, state, due_at, started_at, ended_at, error_type, error_message, http_status,
                response, dead, exit_code, reason)
    WHERE o.job = p.job AND o.execution = p.id AND o.state = 'RUNNING'
      AND o.attempt = coalesce(p.attempt, :same_attempts::integer) AND o.token = coalesce(p.token, :same_tokens::integer)
    RETURNING p.*, o.scheduled_at, o.started_at AS began_at, o.node, o.attempt AS number, o.token AS fence
),
ended AS (
    UPDATE executions AS e
    SET state = coalesce(g.state, :same_states::text), due_at = coalesce(g.due_at, :same_due_ats::bigint),
        started_at = coalesce(g.began_at, g.started_at, :same_started_ats::bigint),
        ended_at = greatest(coalesce(g.ended_at, :same_ended_ats::bigint), g.began_at),
        attempt = g.number, token = g.fence, node = g.node, dead = coalesce(g.dead, :same_deads::boolean),
        reason = coalesce(g.reason, :same_reasons::text)
    FROM gone AS g WHERE e.scheduled_at = g.scheduled_at AND e.id = g.id
),
tried AS (
    INSERT INTO attempts (scheduled_at, execution, started_at, ended_at, attempt, node, http_status, exit_code, error_type,
                          error_message, response)
    SELECT scheduled_at, id, coalesce(started_at, :same_started_ats::bigint), coalesce(ended_at, :same_ended_ats::bigint),
           number, node, coalesce(http_status, :same_http_statuses::integer),
           coalesce(exit_code, :same_exit_codes::integer), coalesce(error_type, :same_error_types::text),
           coalesce(error_message, :same_error_messages::text), coalesce(response, :same_responses::text)
    FROM gone
)
SELECT (SELECT count(*) FROM gone) AS written,
       :any_completed::boolean AND EXISTS (
           SELECT 1 FROM gone AS g WHERE EXISTS (
               SELECT 1 FROM open_runs AS r WHERE r.job = g.job AND r.execution <> g.id AND EXISTS (
                   SELECT 1 FROM timers AS t WHERE t.job = r.job AND t.status = 'COMPLETED' AND t.due_at IS NULL OFFSET 0)
               OFFSET 0)) AS goes_on,
       EXISTS (SELECT 1 FROM open_runs WHERE held) AS has_held,
       CASE WHEN EXISTS (SELECT 1 FROM chains) THEN EXISTS (
           SELECT 1 FROM gone AS g WHERE EXISTS (
               SELECT 1 FROM jobs AS j JOIN chains AS c
               ON c.tenant = j.tenant AND c.key IN (j.key, j.id::text COLLATE "C")
               WHERE j.id = g.job OFFSET 0)) ELSE false END AS has_followers;

-- name: retry_executions
-- The same for executions that are tried again, without those whose cancellation was requested.
WITH again AS (
    UPDATE open_runs AS o
    SET state = p.state, due_at = p.due_at, started_at = coalesce(o.started_at, p.started_at)
    FROM unnest(:ids::uuid[], :jobs::uuid[], :attempts::integer[], :tokens::integer[], :states::text[],
                :due_ats::bigint[], :started_ats::bigint[], :ended_ats::bigint[], :error_types::text[],
                :error_messages::text[], :http_statuses::integer[], :responses::text[], :exit_codes::integer[])
         AS p (id, job, attempt, token, state, due_at, started_at, ended_at, error_type, error_message, http_status,
               response, exit_code)
    WHERE o.job = p.job AND o.execution = p.id AND o.state = 'RUNNING' AND o.attempt = p.attempt AND o.token = p.token
      AND NOT o.cancel_requested
    RETURNING p.*, o.scheduled_at, o.node
),
tried AS (
    INSERT INTO attempts (scheduled_at, execution, started_at, ended_at, attempt, node, http_status, exit_code, error_type,
                          error_message, response)
    SELECT scheduled_at, id, started_at, ended_at, attempt, node, http_status, exit_code, error_type,
           error_message, response
    FROM again
)
SELECT count(*) FROM again;

-- name: finish_executions_on_slow_path
-- For a page that the statements above could not write: each row is checked by itself.
-- The fence: only the latest claim may write. An execution whose cancellation was requested is not tried again.
-- Locks the timers first, in the order of their ids: other transactions that add or end executions of these jobs wait.
WITH page AS MATERIALIZED (
    SELECT p.*
    FROM unnest(:ids::uuid[], :jobs::uuid[], :scheduled_ats::bigint[], :attempts::integer[], :tokens::integer[],
                :states::text[], :due_ats::bigint[], :started_ats::bigint[], :ended_ats::bigint[], :error_types::text[],
                :error_messages::text[], :http_statuses::integer[], :responses::text[], :deads::boolean[],
                :exit_codes::integer[], :reasons::text[])
         AS p (id, job, scheduled_at, attempt, token, state, due_at, started_at, ended_at, error_type, error_message,
               http_status, response, dead, exit_code, reason)
    JOIN timers AS t ON t.job = p.job
    ORDER BY p.job, p.id FOR NO KEY UPDATE OF t
),
gone AS (
    DELETE FROM open_runs AS o USING page AS p
    WHERE o.job = p.job AND o.execution = p.id
      AND o.state = 'RUNNING' AND o.attempt = p.attempt AND o.token = p.token
      AND (p.state NOT IN ('QUEUED', 'RETRYING') OR o.cancel_requested)
    RETURNING p.*, o.started_at AS began_at, o.node
),
again AS (
    UPDATE open_runs AS o
    SET state = p.state, due_at = p.due_at, started_at = coalesce(o.started_at, p.started_at)
    FROM page AS p
    WHERE o.job = p.job AND o.execution = p.id
      AND o.state = 'RUNNING' AND o.attempt = p.attempt AND o.token = p.token
      AND p.state IN ('QUEUED', 'RETRYING') AND NOT o.cancel_requested
    RETURNING p.*, o.node
),
ended AS (
    UPDATE executions AS e
    SET state = CASE WHEN g.state IN ('QUEUED', 'RETRYING') THEN 'CANCELLED' ELSE g.state END,
        due_at = CASE WHEN g.state IN ('QUEUED', 'RETRYING') THEN g.ended_at ELSE g.due_at END,
        started_at = coalesce(g.began_at, g.started_at), ended_at = greatest(g.ended_at, coalesce(g.began_at, 0)),
        attempt = g.attempt, token = g.token, node = g.node, dead = g.dead, reason = g.reason
    FROM gone AS g WHERE e.scheduled_at = g.scheduled_at AND e.id = g.id
),
tried AS (
    INSERT INTO attempts (scheduled_at, execution, started_at, ended_at, attempt, node, http_status, exit_code, error_type,
                          error_message, response)
    SELECT scheduled_at, id, started_at, ended_at, attempt, node, http_status, exit_code, error_type, error_message,
           response
    FROM (SELECT scheduled_at, id, started_at, ended_at, attempt, node, http_status, exit_code, error_type, error_message,
                 response
          FROM gone
          UNION ALL
          SELECT scheduled_at, id, started_at, ended_at, attempt, node, http_status, exit_code, error_type, error_message,
                 response
          FROM again) AS written
    ON CONFLICT DO NOTHING
),
counted AS MATERIALIZED (SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM again) AS written)
SELECT CASE WHEN written < :expected::bigint THEN
           coalesce((SELECT array_agg(concat_ws(' ', id, attempt, token))
                     FROM (SELECT id, attempt, token FROM gone UNION ALL SELECT id, attempt, token FROM again) AS w),
                    ARRAY[]::text[]) END AS written,
       (SELECT array_agg(id::text) FROM gone WHERE state IN ('QUEUED', 'RETRYING')) AS stopped
FROM counted;

-- name: finish_timers_on_slow_path
-- A separate statement, because it must see which executions the one before has ended.
WITH counted AS (
    UPDATE timers AS t
    SET runs = t.runs + p.runs, successes = t.successes + p.successes, failures = t.failures + p.failures,
        busy_ms = t.busy_ms + p.busy_ms, last_run_at = p.last_run_at, last_state = p.last_state,
        status = CASE WHEN t.due_at IS NULL AND t.status = 'PENDING'
                           AND NOT EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = t.job OFFSET 0)
                      THEN 'COMPLETED' ELSE t.status END
    FROM unnest(:jobs::uuid[], :runs::integer[], :successes::integer[], :failures::integer[], :busy_ms::bigint[],
                :last_run_ats::bigint[], :last_states::text[])
         AS p (job, runs, successes, failures, busy_ms, last_run_at, last_state)
    JOIN timers AS o ON o.job = p.job
    WHERE t.job = p.job
    RETURNING t.tenant, t.status <> o.status AS is_new
),
completed AS (SELECT tenant, count(*) AS number FROM counted WHERE is_new GROUP BY tenant)
SELECT EXISTS (SELECT 1 FROM open_runs WHERE held) AS has_held,
       (SELECT json_object_agg(tenant, number)::text FROM completed) AS completed;

-- name: has_held
SELECT EXISTS (SELECT 1 FROM open_runs WHERE held);

-- name: release_held
-- Releases the oldest held execution of each job of the page that has no other open execution.
UPDATE open_runs AS o SET held = false
FROM unnest(:jobs::uuid[]) AS p (job)
CROSS JOIN LATERAL (SELECT h.execution FROM open_runs AS h WHERE h.job = p.job AND h.held
                    ORDER BY h.scheduled_at, h.extra LIMIT 1) AS first
WHERE o.job = p.job AND o.execution = first.execution
  AND NOT EXISTS (
      SELECT 1 FROM open_runs AS r
      WHERE r.job = p.job AND NOT r.held
        AND NOT (r.state = 'QUEUED' AND r.trigger = 'retry' AND r.attempt = 0 AND r.due_at > r.scheduled_at));

-- name: release_claims
WITH released AS (
    UPDATE open_runs AS o SET state = 'QUEUED', attempt = o.attempt - 1, due_at = :now::bigint, node = NULL
    FROM unnest(:ids::uuid[], :jobs::uuid[], :attempts::integer[], :tokens::integer[]) AS p (id, job, attempt, token)
    WHERE o.job = p.job AND o.execution = p.id
      AND o.state = 'RUNNING' AND o.attempt = p.attempt AND o.token = p.token
    RETURNING o.tenant, o.scheduled_at
)
SELECT tenant, (scheduled_at / 86400000)::integer AS day, count(*) FROM released GROUP BY 1, 2;

-- name: get_execution_job
SELECT e.job::text, e.state FROM executions AS e
WHERE e.scheduled_at = :at::bigint AND e.id = :id::uuid AND e.tenant = :tenant::text;

-- name: lock_open_execution
SELECT state FROM open_runs WHERE job = :job::uuid AND execution = :id::uuid FOR UPDATE;

-- name: save_progress
WITH claim AS MATERIALIZED (
    SELECT scheduled_at, execution FROM open_runs
    WHERE job = :job::uuid AND execution = :id::uuid AND state = 'RUNNING' AND attempt = :attempt::integer
      AND token = :token::integer AND tenant = :tenant::text
    FOR SHARE
),
saved AS (
    INSERT INTO progress (scheduled_at, execution, value)
    SELECT scheduled_at, execution, :value::text FROM claim WHERE :value::text IS NOT NULL
    ON CONFLICT (scheduled_at, execution) DO UPDATE SET value = excluded.value
),
forgotten AS (
    DELETE FROM progress AS p USING claim AS c
    WHERE p.scheduled_at = c.scheduled_at AND p.execution = c.execution AND :value::text IS NULL
)
SELECT count(*) > 0 FROM claim;

-- name: set_reason
UPDATE executions SET reason = coalesce(reason, :reason::text) WHERE scheduled_at = :at::bigint AND id = :execution::uuid;

-- name: list_owners
SELECT id::text, owner FROM jobs WHERE id = ANY (:jobs::uuid[]);
