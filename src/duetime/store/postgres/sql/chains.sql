-- Jobs that come after others, and jobs whose one run is long over.
-- A link names the job that is waited for by its id or by its key. Where a key looks like the id of another job, the id
-- counts: nobody can take an end's place by choosing a key. (CASE: what is no id must not be cast to one.)

-- name: lock_chains
-- Of these tenants nobody else adds a link until the commit: two that are added at once could close a loop together.
SELECT count(pg_advisory_xact_lock(number)) FROM (
    SELECT DISTINCT hashtextextended('chains of ' || tenant, 0) AS number FROM unnest(:tenants::text[]) AS t (tenant)
    ORDER BY 1) AS locks;

-- name: lock_followers
-- The timers of the jobs that wait for one of these, if all of them can be had at once: this transaction holds others
-- already, and to wait for these, whose order is another, would be to wait for who waits for us.
SELECT array_agg(job::text) FROM (
    SELECT job FROM timers
    WHERE job IN (SELECT c.job FROM jobs AS j JOIN chains AS c
                  ON c.tenant = j.tenant AND c.key IN (j.key, j.id::text COLLATE "C")
                  WHERE j.id = ANY (:jobs::uuid[]))
    ORDER BY job FOR NO KEY UPDATE NOWAIT) AS locked;

-- name: lock_with_followers
-- The timers of these jobs and of those that wait for them, in one order.
SELECT array_agg(job::text) FROM (
    SELECT job FROM timers
    WHERE job IN (SELECT unnest(:jobs::uuid[]) UNION
                  SELECT c.job FROM jobs AS j JOIN chains AS c
                  ON c.tenant = j.tenant AND c.key IN (j.key, j.id::text COLLATE "C")
                  WHERE j.id = ANY (:jobs::uuid[]))
    ORDER BY job FOR NO KEY UPDATE) AS locked;

-- name: list_links
-- All links of these jobs. Their timers are locked by an earlier statement: no link of theirs changes until the commit.
SELECT c.job::text, c.tenant, c.key, c.ends, c.is_done, t.status,
       CASE WHEN t.status = 'PAUSED' THEN t.resume_at ELSE t.due_at END AS due_at, p.id::text AS awaited
FROM chains AS c
JOIN timers AS t ON t.job = c.job
LEFT JOIN jobs AS p ON p.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.tenant = c.tenant AND i.id =
                                           CASE WHEN c.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.key::uuid END),
                                       (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
WHERE c.job = ANY (:jobs::uuid[]);

-- name: mark_links
UPDATE chains AS c SET is_done = m.is_done
FROM unnest(:jobs::uuid[], :keys::text[], :dones::boolean[]) AS m (job, key, is_done)
WHERE c.job = m.job AND c.key = m.key;

-- name: start_followers
-- Due now, or at the first instant after it that has no decision yet: clocks stand still, and are set back.
UPDATE timers AS t SET due_at = coalesce(s.at, :now::bigint + 1001)
FROM (
    SELECT f.job, (SELECT n.at FROM generate_series(:now::bigint, :now::bigint + 1000) AS n (at)
                   WHERE NOT EXISTS (SELECT 1 FROM executions AS e
                                     WHERE e.job = f.job AND e.scheduled_at = n.at AND e.extra = 0 OFFSET 0)
                     AND NOT EXISTS (SELECT 1 FROM skips AS k WHERE k.job = f.job AND k.first_at = n.at OFFSET 0)
                   LIMIT 1) AS at
    FROM unnest(:jobs::uuid[]) AS f (job)
) AS s
WHERE t.job = s.job;

-- name: add_links
-- A link that was there keeps its mark, unless other ends count from here on.
INSERT INTO chains AS c (job, tenant, key, ends)
SELECT * FROM unnest(:jobs::uuid[], :tenants::text[], :keys::text[], :ends::text[])
ON CONFLICT (job, key) DO UPDATE SET is_done = c.is_done AND c.ends = excluded.ends, ends = excluded.ends;

-- name: drop_links
DELETE FROM chains WHERE job = :job::uuid AND key <> ALL (:but::text[]);

-- name: list_missing
-- Of these names, all of the form of an id: those that no job of the tenant has, as its id or as its key. What the job
-- `job` waits for already is not asked about again.
SELECT n.name
FROM unnest(:names::text[]) AS n (name)
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = n.name::uuid AND j.tenant = :tenant::text)
  AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant = :tenant::text AND j.key = n.name)
  AND NOT EXISTS (SELECT 1 FROM chains AS c WHERE c.job = :job::uuid AND c.key = n.name);

-- name: is_awaited
SELECT EXISTS (SELECT 1 FROM chains WHERE tenant = :tenant::text AND key = ANY (:names::text[]));

-- name: list_chain
-- The links of these jobs and of all that they come after, near and far. Jobs have the name of their key, or of their id.
WITH RECURSIVE up (job) AS (
    SELECT unnest(:jobs::uuid[])
    UNION
    SELECT coalesce((SELECT i.id FROM jobs AS i WHERE i.tenant = c.tenant AND i.id =
                        CASE WHEN c.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.key::uuid END),
                    (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
    FROM up JOIN chains AS c ON c.job = up.job
)
SELECT coalesce(j.key, j.id::text) AS name, coalesce(a.key, a.id::text) AS awaited, j.owner
FROM up JOIN jobs AS j ON j.id = up.job JOIN chains AS c ON c.job = j.id
JOIN jobs AS a ON a.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.tenant = c.tenant AND i.id =
                                      CASE WHEN c.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.key::uuid END),
                                  (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
LIMIT :most::bigint;

-- name: lock_to_sweep
-- A page of jobs, and those of them that may be removed. Whoever is about to run one of these again goes first.
-- (`delivered`: notifications that were sent with their only run; their history goes with them.)
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
-- Of notifications that were delivered, now that their timers are locked. Each has one execution, or few: what is left of
-- a job that has more goes by its age. (From its creation on: so the days before need not be looked into.)
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
-- In a statement of its own: only now that the timers are locked nothing can be added to these jobs.
WITH gone AS MATERIALIZED (
    SELECT t.job FROM timers AS t
    WHERE t.job = ANY (:jobs::uuid[])
      AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.job = t.job OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = t.job OFFSET 0)
),
linked AS (DELETE FROM chains AS c USING gone AS g WHERE c.job = g.job),
timed AS (DELETE FROM timers AS t USING gone AS g WHERE t.job = g.job)
DELETE FROM jobs AS j USING gone AS g WHERE j.id = g.job
RETURNING j.id::text, j.tenant, j.size, coalesce(j.tags ? :tag::text, false) AS is_notification;

-- name: sweep_limits
-- Whoever takes of a limit just now keeps it.
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

-- name: set_reason
UPDATE executions SET reason = coalesce(reason, :reason::text) WHERE scheduled_at = :at::bigint AND id = :execution::uuid;

-- name: sweep_counters
-- Rows of one total that come to 0 together may go whatever the others are, and whatever is added meanwhile: the total
-- stays as it is. Totals of recent days, and the few of all tenants, are written all the time and stay.
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

-- name: list_owners
SELECT id::text, owner FROM jobs WHERE id = ANY (:jobs::uuid[]);
