-- Commands of housekeeping. They remove rows by age (prune), of a tenant (trim), or that no index finds by age (sweep).

-- name: prune_executions
-- By the partition key, oldest first. Open executions have no state here, and stay.
WITH page AS MATERIALIZED (
    SELECT e.scheduled_at, e.id FROM executions AS e
    WHERE e.scheduled_at < :before::bigint AND e.state IS NOT NULL
    ORDER BY e.scheduled_at, e.id LIMIT :limit::bigint
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.scheduled_at = p.scheduled_at AND a.execution = p.id
),
said AS (
    DELETE FROM progress AS s USING page AS p WHERE s.scheduled_at = p.scheduled_at AND s.execution = p.id
),
gone AS (
    DELETE FROM executions AS e USING page AS p WHERE e.scheduled_at = p.scheduled_at AND e.id = p.id AND e.state IS NOT NULL
    RETURNING e.tenant, e.state, e.scheduled_at
)
SELECT tenant, state, (scheduled_at / 86400000)::integer AS day, count(*) FROM gone GROUP BY 1, 2, 3;

-- name: prune_skips
DELETE FROM skips WHERE (job, first_at) IN (
    SELECT job, first_at FROM skips WHERE until_at < :before::bigint ORDER BY until_at LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED);

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys WHERE (tenant, key) IN (
    SELECT tenant, key FROM idempotency_keys WHERE created_at < :before::bigint ORDER BY created_at LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED);

-- name: prune_circuits
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE touched_at < :before::bigint ORDER BY touched_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: prune_nodes
DELETE FROM nodes WHERE id IN (
    SELECT id FROM nodes WHERE ended_at < :before::bigint ORDER BY ended_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: prune_api_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL) AND least(revoked_at, expires_at) < :before::bigint
    ORDER BY least(revoked_at, expires_at) LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: prune_commits
-- A writer that ended a day ago no longer needs its row.
DELETE FROM commits WHERE writer IN (
    SELECT writer FROM commits WHERE at < now() - interval '1 day' LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: drop_progress_of_day
DELETE FROM progress WHERE scheduled_at >= :since::bigint AND scheduled_at < :before::bigint;

-- name: drop_counters_of_day
DELETE FROM counters WHERE day = :day::integer AND tenant <> '' AND name NOT IN ('jobs', 'bytes') RETURNING value;

-- name: is_open_between
SELECT EXISTS (SELECT 1 FROM open_runs WHERE scheduled_at >= :since::bigint AND scheduled_at < :before::bigint);

-- name: list_to_trim
SELECT id, state IS NOT NULL AND NOT dead FROM executions
WHERE tenant = :tenant::text AND tenant <> 'default' AND scheduled_at >= :at::bigint
  AND (scheduled_at, id) > (:at::bigint, :after::uuid)
ORDER BY scheduled_at, id LIMIT :look::bigint;

-- name: list_to_trim_of_default
-- (The index by tenant does not contain this tenant, which is often the only one: then the primary key has the order.)
SELECT id, tenant = :tenant::text AND state IS NOT NULL AND NOT dead FROM executions
WHERE scheduled_at >= :at::bigint AND (scheduled_at, id) > (:at::bigint, :after::uuid)
ORDER BY scheduled_at, id LIMIT :look::bigint;

-- name: list_dead_to_trim
SELECT id FROM executions WHERE tenant = :tenant::text AND dead AND state IS NOT NULL
ORDER BY scheduled_at, id LIMIT :number::bigint;

-- name: trim_executions
-- As prune_executions, for these ids.
WITH page AS MATERIALIZED (
    SELECT * FROM unnest(:ats::bigint[], :ids::uuid[]) AS p (scheduled_at, id)
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.scheduled_at = p.scheduled_at AND a.execution = p.id
),
said AS (
    DELETE FROM progress AS s USING page AS p WHERE s.scheduled_at = p.scheduled_at AND s.execution = p.id
),
gone AS (
    DELETE FROM executions AS e USING page AS p WHERE e.scheduled_at = p.scheduled_at AND e.id = p.id AND e.state IS NOT NULL
    RETURNING e.tenant, e.state, e.scheduled_at
)
SELECT tenant, state, (scheduled_at / 86400000)::integer AS day, count(*) FROM gone GROUP BY 1, 2, 3;

-- name: lock_to_sweep
-- Returns a page of jobs, and those of them that may be removed, with their timers locked. Skips timers that another
-- transaction has locked: it may run the job again.
-- (`delivered`: notifications that their only run has delivered; they are removed with their history.)
WITH page AS MATERIALIZED (
    SELECT id, key, updated_at, tags FROM jobs WHERE id > :after::uuid ORDER BY id LIMIT :limit::bigint
)
SELECT (SELECT count(*) FROM page) AS number, (SELECT id::text FROM page ORDER BY id DESC LIMIT 1) AS last, (
    SELECT array_agg(job::text) FROM (
        SELECT t.job FROM page AS p JOIN timers AS t ON t.job = p.id
        WHERE p.key IS NULL AND (t.status = 'CANCELLED' OR t.status = 'COMPLETED' AND NOT t.recurs)
          AND p.updated_at < :before::bigint AND coalesce(t.last_run_at, 0) < :before::bigint
        ORDER BY t.job FOR NO KEY UPDATE OF t SKIP LOCKED) AS locked) AS jobs, (
    SELECT array_agg(job::text) FROM (
        SELECT t.job FROM page AS p JOIN timers AS t ON t.job = p.id
        WHERE p.key IS NULL AND t.status = 'COMPLETED' AND NOT t.recurs AND t.last_state = 'COMPLETED' AND t.runs = 1
          AND p.updated_at < :delivered_before::bigint AND t.last_run_at < :delivered_before::bigint
          AND p.tags ? :tag::text
        ORDER BY t.job FOR NO KEY UPDATE OF t SKIP LOCKED) AS locked) AS delivered;

-- name: sweep_history
-- Removes up to ten executions of each delivered notification, whose timers are locked. It has one, or few; further ones
-- are pruned by age. (The condition on `created_at` spares a search of the partitions of earlier days.)
WITH page AS MATERIALIZED (
    SELECT e.scheduled_at, e.id
    FROM jobs AS j CROSS JOIN LATERAL (
        SELECT x.scheduled_at, x.id FROM executions AS x
        WHERE x.job = j.id AND x.scheduled_at >= j.created_at AND x.state IS NOT NULL LIMIT 10) AS e
    WHERE j.id = ANY (:jobs::uuid[]) AND NOT EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = j.id)
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.scheduled_at = p.scheduled_at AND a.execution = p.id
),
said AS (
    DELETE FROM progress AS s USING page AS p WHERE s.scheduled_at = p.scheduled_at AND s.execution = p.id
),
gone AS (
    DELETE FROM executions AS e USING page AS p WHERE e.scheduled_at = p.scheduled_at AND e.id = p.id
    RETURNING e.tenant, e.state, e.scheduled_at
)
SELECT tenant, state, (scheduled_at / 86400000)::integer AS day, count(*) FROM gone GROUP BY 1, 2, 3;

-- name: sweep_jobs
-- A separate statement: nothing can be added to these jobs after their timers are locked.
WITH gone AS MATERIALIZED (
    SELECT t.job, t.status FROM timers AS t
    WHERE t.job = ANY (:jobs::uuid[])
      AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.job = t.job OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = t.job OFFSET 0)
),
linked AS (DELETE FROM chains AS c USING gone AS g WHERE c.job = g.job),
unwatched AS (DELETE FROM watched_jobs AS w USING gone AS g WHERE w.job = g.job),
timed AS (DELETE FROM timers AS t USING gone AS g WHERE t.job = g.job)
DELETE FROM jobs AS j USING gone AS g WHERE j.id = g.job
RETURNING j.id::text, j.tenant, j.size, g.status, coalesce(j.tags ? :tag::text, false) AS is_notification;

-- name: sweep_limits
-- Skips limits that another transaction is using.
WITH page AS MATERIALIZED (
    SELECT tenant, user_id, name FROM limits
    WHERE (tenant, user_id, name) > (:tenant::text, :user_id::text, :name::text)
    ORDER BY tenant, user_id, name LIMIT :limit::bigint
),
full_again AS MATERIALIZED (
    SELECT l.tenant, l.user_id, l.name
    FROM page AS p JOIN limits AS l ON l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
    WHERE l.full_at < :before::bigint FOR UPDATE OF l SKIP LOCKED
),
gone AS (
    DELETE FROM limits AS l USING full_again AS f
    WHERE l.tenant = f.tenant AND l.user_id = f.user_id AND l.name = f.name
    RETURNING 1
)
SELECT tenant, user_id, name, (SELECT count(*) FROM page) AS number, (SELECT count(*) FROM gone) AS removed
FROM page ORDER BY tenant DESC, user_id DESC, name DESC LIMIT 1;

-- name: sweep_counters
-- Rows of one total whose sum is 0 may be removed, whatever is added meanwhile: the total does not change. Totals of
-- recent days, and the few totals of all tenants, are written all the time and stay.
WITH page AS MATERIALIZED (
    SELECT tenant, name, day, sum(value) AS total FROM counters
    WHERE (tenant, name, day) > (:tenant::text, :name::text, :day::integer)
    GROUP BY tenant, name, day ORDER BY tenant, name, day LIMIT :limit::bigint
),
locked AS MATERIALIZED (
    SELECT c.tenant, c.name, c.day, c.slot, c.value
    FROM page AS p JOIN counters AS c ON c.tenant = p.tenant AND c.name = p.name AND c.day = p.day
    WHERE p.total = 0 AND p.tenant <> '' AND p.day < :before::integer
    FOR UPDATE OF c SKIP LOCKED
),
nothing AS (
    SELECT tenant, name, day FROM locked GROUP BY tenant, name, day HAVING sum(value) = 0
),
gone AS (
    DELETE FROM counters AS c USING locked AS l JOIN nothing AS n USING (tenant, name, day)
    WHERE c.tenant = l.tenant AND c.name = l.name AND c.day = l.day AND c.slot = l.slot
    RETURNING 1
)
SELECT tenant, name, day, (SELECT count(*) FROM page) AS number, (SELECT count(*) FROM gone) AS removed
FROM page ORDER BY tenant DESC, name DESC, day DESC LIMIT 1;

-- name: prune_job_totals
-- Rows of one total whose sum is 0 may be removed, whatever is added meanwhile, as in `sweep_counters`.
WITH nothing AS MATERIALIZED (
    SELECT tenant, status FROM job_totals WHERE tenant <> '' GROUP BY 1, 2 HAVING sum(value) = 0 LIMIT :limit::bigint
),
locked AS MATERIALIZED (
    SELECT j.* FROM nothing AS n JOIN job_totals AS j ON j.tenant = n.tenant AND j.status = n.status
    ORDER BY j.tenant, j.status, j.slot FOR UPDATE OF j SKIP LOCKED
),
still AS (
    SELECT tenant, status FROM locked GROUP BY 1, 2 HAVING sum(value) = 0
)
DELETE FROM job_totals AS j USING locked AS l JOIN still AS s USING (tenant, status)
WHERE j.tenant = l.tenant AND j.status = l.status AND j.slot = l.slot;

-- name: lock_audit_link
SELECT encode(hash, 'hex') FROM audit_links WHERE chain = :chain::smallint AND link = :link::bigint FOR UPDATE;

-- name: get_audit_checkpoint
SELECT link FROM audit_checkpoints WHERE chain = :chain::smallint;

-- name: prune_audit
WITH linked AS (
    DELETE FROM audit_links WHERE chain = :chain::smallint AND link <= :link::bigint
),
kept AS (
    INSERT INTO audit_checkpoints (chain, link, hash, at)
    VALUES (:chain::smallint, :link::bigint, decode(:hash::text, 'hex'), :now::bigint)
    ON CONFLICT (chain) DO UPDATE SET link = excluded.link, hash = excluded.hash, at = excluded.at
)
DELETE FROM audit WHERE chain = :chain::smallint AND link <= :link::bigint;
