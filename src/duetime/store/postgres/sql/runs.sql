-- Commands on executions: fire, add, claim, finish, release.

-- name: get_node
-- Shared until the commit: whoever ends this node waits for it.
SELECT ended_at IS NULL FROM nodes WHERE id = :node::integer FOR SHARE;

-- name: list_epochs
-- Shared until the commit: a FenceShards of one of these shards waits for it.
SELECT shard, epoch FROM shard_epochs WHERE shard = ANY (:shards::integer[]) ORDER BY shard FOR SHARE;

-- name: fire_timers
-- Moves the page's timers, in the order of their ids, if they are still as the plan read them.
-- (`:same_…` here and below: what a column holds in every row; its array is NULL then. See columns.py.)
-- IS TRUE keeps the planner from looking a timer up by its instant: on a new database, where it knows nothing yet of the
-- tables, it takes that index for the smaller one, and walks it once a shard for each timer: 30 times as long, measured.
WITH moved AS (
    UPDATE timers AS t SET due_at = coalesce(p.next_due_at, :same_next_due_ats::bigint),
                           fired = t.fired + coalesce(p.runs, :same_runs::integer)
    FROM (SELECT * FROM unnest(:jobs::uuid[], :due_ats::bigint[], :versions::integer[], :next_due_ats::bigint[],
                               :runs::integer[]) AS u (job, due_at, version, next_due_at, runs) ORDER BY job) AS p
    WHERE t.job = p.job AND (t.due_at = coalesce(p.due_at, :same_due_ats::bigint)) IS TRUE
      AND t.version = coalesce(p.version, :same_versions::integer)
    RETURNING t.job
),
counted AS MATERIALIZED (SELECT count(*) AS moved FROM moved)
SELECT CASE WHEN moved < :expected::bigint THEN coalesce((SELECT array_agg(job::text) FROM moved), ARRAY[]::text[]) END AS moved
FROM counted;

-- name: fire_runs
-- Runs whose job has an execution open, or another run in this page, are left to settle, and named. The timers are locked
-- by an earlier statement, so what is seen here of a job's open runs is how it stays until the commit.
-- An instant that was decided before overlaps nothing, least of all itself: the unique index refuses the page.
-- (OFFSET 0 keeps the planner from reading the whole table into a hash instead of one probe a row; so in all of these.)
WITH page AS MATERIALIZED (
    SELECT p.*, CASE WHEN coalesce(p.if_open, :same_if_opens::text) = 'run' THEN false
                     WHEN coalesce(p.if_open, :same_if_opens::text) = 'settle'
                          -- A dead letter that was driven again at a pace, and waits for its turn, holds nothing up.
                          OR EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = p.job AND NOT (
                                         o.state = 'QUEUED' AND o.trigger = 'retry' AND o.attempt = 0
                                         AND o.due_at > o.scheduled_at) OFFSET 0)
                     THEN NOT EXISTS (SELECT 1 FROM executions AS d
                                      WHERE d.job = p.job AND d.extra = 0
                                        AND d.scheduled_at = coalesce(p.scheduled_at, :same_scheduled_ats::bigint) OFFSET 0)
                     ELSE false END AS has_open
    FROM unnest(:ids::uuid[], :jobs::uuid[], :tenants::text[], :scheduled_ats::bigint[], :triggers::text[],
                :priorities::smallint[], :endpoints::bigint[], :if_opens::text[])
         AS p (id, job, tenant, scheduled_at, trigger, priority, endpoint, if_open)
),
decided AS (
    INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
    SELECT coalesce(scheduled_at, :same_scheduled_ats::bigint), id, job, coalesce(endpoint, :same_endpoints::bigint), 0,
           coalesce(priority, :same_priorities::smallint), coalesce(trigger, :same_triggers::text),
           coalesce(tenant, :same_tenants::text)
    FROM page WHERE NOT has_open
),
opened AS (
    INSERT INTO open_runs (job, execution, scheduled_at, endpoint, due_at, extra, attempt, token, node, priority, state,
                           trigger, tenant)
    SELECT job, id, coalesce(scheduled_at, :same_scheduled_ats::bigint), coalesce(endpoint, :same_endpoints::bigint),
           coalesce(scheduled_at, :same_scheduled_ats::bigint), 0, :attempt::integer, :attempt::integer, :node::integer,
           coalesce(priority, :same_priorities::smallint), :state::text, coalesce(trigger, :same_triggers::text),
           coalesce(tenant, :same_tenants::text)
    FROM page WHERE NOT has_open
)
SELECT p.id::text FROM page AS p WHERE p.has_open;

-- name: list_open_of_page
-- What each of these jobs has open, and how many of its executions are held, up to a bound. Their timers are locked.
SELECT p.job::text,
       EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = p.job AND NOT (
                   o.state = 'QUEUED' AND o.trigger = 'retry' AND o.attempt = 0 AND o.due_at > o.scheduled_at)
               OFFSET 0) AS is_open,
       (SELECT count(*) FROM (SELECT 1 FROM open_runs AS h WHERE h.job = p.job AND h.held LIMIT :most::bigint) AS w) AS waiting
FROM unnest(:jobs::uuid[]) AS p (job);

-- name: list_decided
-- The runs whose instant was decided before. Their timers are locked: it stays so.
SELECT p.id::text FROM unnest(:ids::uuid[], :jobs::uuid[], :scheduled_ats::bigint[]) AS p (id, job, scheduled_at)
WHERE EXISTS (SELECT 1 FROM executions AS d
              WHERE d.job = p.job AND d.scheduled_at = p.scheduled_at AND d.extra = 0 OFFSET 0);

-- name: skip_runs
INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant, due_at, state, reason, ended_at)
SELECT scheduled_at, id, job, endpoint, 0, priority, trigger, tenant, scheduled_at, 'SKIPPED', :reason::text, :now::bigint
FROM unnest(:ids::uuid[], :jobs::uuid[], :tenants::text[], :scheduled_ats::bigint[], :triggers::text[],
            :priorities::smallint[], :endpoints::bigint[])
     AS p (id, job, tenant, scheduled_at, trigger, priority, endpoint);

-- name: hold_runs
WITH decided AS (
    INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
    SELECT scheduled_at, id, job, endpoint, 0, priority, trigger, tenant
    FROM unnest(:ids::uuid[], :jobs::uuid[], :tenants::text[], :scheduled_ats::bigint[], :triggers::text[],
                :priorities::smallint[], :endpoints::bigint[])
         AS p (id, job, tenant, scheduled_at, trigger, priority, endpoint)
    RETURNING *
)
INSERT INTO open_runs (job, execution, scheduled_at, endpoint, due_at, extra, attempt, token, priority, held, state,
                       trigger, tenant)
SELECT job, id, scheduled_at, endpoint, scheduled_at, 0, 0, 0, priority, true, 'QUEUED', trigger, tenant FROM decided;

-- name: list_open_of_jobs
SELECT o.job::text, o.execution::text, o.state FROM open_runs AS o
WHERE o.job = ANY (:jobs::uuid[])
  AND NOT (o.state = 'QUEUED' AND o.trigger = 'retry' AND o.attempt = 0 AND o.due_at > o.scheduled_at)
ORDER BY o.job, o.execution FOR UPDATE;

-- name: uncount_runs
-- Runs of the page that were not to count, by job; where they were to be the last, the job is due again. One that is
-- paused is when it is resumed; one that was changed meanwhile, so that it has one run only, is not. Locked by now.
UPDATE timers AS t
SET fired = greatest(0, t.fired - u.runs),
    due_at = CASE WHEN t.status IN ('PENDING', 'COMPLETED') AND t.recurs
                  THEN coalesce(t.due_at, u.or_due_at) ELSE t.due_at END,
    resume_at = CASE WHEN t.status = 'PAUSED' AND t.recurs
                     THEN coalesce(t.resume_at, u.or_due_at) ELSE t.resume_at END,
    status = CASE WHEN t.status = 'COMPLETED' AND t.recurs AND u.or_due_at IS NOT NULL THEN 'PENDING' ELSE t.status END
FROM unnest(:jobs::uuid[], :runs::integer[], :or_due_ats::bigint[]) AS u (job, runs, or_due_at)
WHERE t.job = u.job;

-- name: get_job_for_run
SELECT t.status, j.spec FROM timers AS t JOIN jobs AS j ON j.id = t.job
WHERE t.job = :job::uuid AND t.tenant = :tenant::text
FOR NO KEY UPDATE OF t;

-- name: lock_redrivable
SELECT e.job::text, p.dead_id::text, p.new_id::text, t.status, j.spec
FROM unnest(:dead_ids::uuid[], :dead_ats::bigint[], :new_ids::uuid[]) AS p (dead_id, dead_at, new_id)
JOIN executions AS e ON e.scheduled_at = p.dead_at AND e.id = p.dead_id
JOIN timers AS t ON t.job = e.job
JOIN jobs AS j ON j.id = e.job
WHERE e.dead AND e.tenant = :tenant::text
ORDER BY e.job, e.id FOR NO KEY UPDATE OF t, e;

-- name: clear_dead
UPDATE executions AS e SET dead = false FROM unnest(:ids::uuid[], :ats::bigint[]) AS p (id, at)
WHERE e.scheduled_at = p.at AND e.id = p.id;

-- name: add_runs
WITH page AS MATERIALIZED (
    SELECT p.*, row_number() OVER (PARTITION BY p.job ORDER BY p.id) + j.extra AS extra
    FROM unnest(:ids::uuid[], :jobs::uuid[], :priorities::smallint[], :endpoints::bigint[], :due_ats::bigint[])
         AS p (id, job, priority, endpoint, due_at)
    -- Once for each job, not for each row (OFFSET 0 again): thousands of one job may be driven in the same ms.
    JOIN (SELECT d.job, coalesce((SELECT max(e.extra) FROM executions AS e
                                  WHERE e.job = d.job AND e.scheduled_at = :now::bigint), 0) AS extra
          FROM (SELECT DISTINCT u.job FROM unnest(:jobs::uuid[]) AS u (job)) AS d OFFSET 0) AS j ON j.job = p.job
),
decided AS (
    INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
    SELECT :now::bigint, id, job, endpoint, extra, priority, :trigger::text, :tenant::text FROM page
)
INSERT INTO open_runs (job, execution, scheduled_at, endpoint, due_at, extra, attempt, token, priority, state, trigger,
                       tenant)
SELECT job, id, :now::bigint, endpoint, due_at, extra, 0, 0, priority, 'QUEUED', :trigger::text, :tenant::text
FROM page;

-- name: claim
-- Of each tenant up to :each, and as many as hold :bytes together, but one at least. A probe for each priority: the index then hands out what is due in order, and never walks
-- over what is not.
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
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS runs, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: claim_only
-- The same for what needs one of these endpoints: a probe for each and each priority. A worker of another tenant is
-- nobody here, whatever its endpoints are.
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
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS runs, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: claim_beside
-- The same, but for endpoints that are full: what waits for those may be most of what there is, and is not walked over.
-- One probe finds the next endpoint of a priority, one the instant its first is due at. Highest priority first; within
-- it the endpoint whose first has waited longest gives all it can. No more than :most endpoints are looked at: a tenant
-- that has more delays itself.
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
    FROM claimed AS c JOIN jobs AS j ON j.id = c.job) AS runs, (
    SELECT json_agg(json_build_array(tenant, was, day, count))::text FROM (
        SELECT tenant, was, scheduled_at / 86400000 AS day, count(*) AS count FROM claimed GROUP BY 1, 2, 3) AS w) AS was;

-- name: finish_timers
-- A finish in two statements, this one first: what it writes is also the lock, for which a statement of its own would
-- write each timer twice. It counts on every row to be accepted, and on nothing else of a job being open; the next one
-- sees whether that was so. (Nothing is counted for what is to be tried again, and it has no `last_state`; but its timer
-- is locked. Of what was skipped, `runs` is 0 and `last_state` is not NULL: its job may have ended.)
WITH counted AS (
    UPDATE timers AS t
    SET runs = t.runs + p.runs, successes = t.successes + p.successes, failures = t.failures + p.failures,
        busy_ms = t.busy_ms + p.busy_ms, last_run_at = coalesce(p.last_run_at, t.last_run_at),
        last_state = coalesce(p.last_state, t.last_state),
        status = CASE WHEN t.due_at IS NULL AND t.status = 'PENDING' AND p.last_state IS NOT NULL THEN 'COMPLETED' ELSE t.status END
    FROM (SELECT job, coalesce(runs, :same_runs::integer) AS runs, coalesce(successes, :same_successes::integer) AS successes,
                 coalesce(failures, :same_failures::integer) AS failures, coalesce(busy_ms, :same_busy_ms::bigint) AS busy_ms,
                 coalesce(last_run_at, :same_last_run_ats::bigint) AS last_run_at,
                 coalesce(last_state, :same_last_states::text) AS last_state
          FROM unnest(:jobs::uuid[], :runs::integer[], :successes::integer[], :failures::integer[], :busy_ms::bigint[],
                      :last_run_ats::bigint[], :last_states::text[])
               AS u (job, runs, successes, failures, busy_ms, last_run_at, last_state)
          ORDER BY job) AS p
    WHERE t.job = p.job
    RETURNING t.due_at IS NULL AND t.status = 'COMPLETED' AS is_completed
)
SELECT count(*) AS counted, coalesce(bool_or(is_completed), false) AS any_completed FROM counted;

-- name: end_runs
-- The fence: only the claim that is still the latest may write.
-- An attempt is its holder's, also where another node ends it: that of a node or worker that was lost, say.
-- The timers are locked by the statement before: what is seen here of a job's open runs is how it stays.
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

-- name: retry_runs
-- The same for what is to be tried again. One that was asked to stop is not.
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

-- name: finish_runs_on_slow_path
-- A page that did not go as above: which of its rows are good, each by itself.
-- The fence: only the claim that is still the latest may write. One that was asked to stop is not tried again.
-- Locks the jobs' timers first, by their ids: what else ends or begins of these jobs waits.
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
-- In a statement of its own: it must see what the one before has ended.
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
    WHERE t.job = p.job
)
SELECT EXISTS (SELECT 1 FROM open_runs WHERE held) AS has_held;

-- name: has_held
SELECT EXISTS (SELECT 1 FROM open_runs WHERE held);

-- name: release_held
-- The oldest held execution of each job of the page that has no other open execution left may run.
UPDATE open_runs AS o SET held = false
FROM unnest(:jobs::uuid[]) AS p (job)
CROSS JOIN LATERAL (SELECT h.execution FROM open_runs AS h WHERE h.job = p.job AND h.held
                    ORDER BY h.scheduled_at, h.extra LIMIT 1) AS first
WHERE o.job = p.job AND o.execution = first.execution
  AND NOT EXISTS (
      SELECT 1 FROM open_runs AS r
      WHERE r.job = p.job AND NOT r.held
        AND NOT (r.state = 'QUEUED' AND r.trigger = 'retry' AND r.attempt = 0 AND r.due_at > r.scheduled_at));

-- name: release_runs
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

-- name: lock_open_run
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
