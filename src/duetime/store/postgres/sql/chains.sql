-- Links of jobs that run after other jobs. A link names the other job by its id or by its key. If a key looks like the
-- id of another job, the id counts: so no user can replace a job by the choice of a key. (CASE: the cast of a text that
-- is no id would fail.)

-- name: lock_chains
-- Until the commit no other transaction adds links of these tenants: two links added at once could form a loop.
SELECT count(pg_advisory_xact_lock(number)) FROM (
    SELECT DISTINCT hashtextextended('chains of ' || tenant, 0) AS number FROM unnest(:tenants::text[]) AS t (tenant)
    ORDER BY 1) AS locks;

-- name: lock_followers
-- Locks the timers of the jobs that wait for one of these, without waiting: this transaction has locked other timers
-- already, in another order, and a wait could be a deadlock.
SELECT array_agg(job::text) FROM (
    SELECT job FROM timers
    WHERE job IN (SELECT c.job FROM jobs AS j JOIN chains AS c
                  ON c.tenant = j.tenant AND c.key IN (j.key, j.id::text COLLATE "C")
                  WHERE j.id = ANY (:jobs::uuid[]))
    ORDER BY job FOR NO KEY UPDATE NOWAIT) AS locked;

-- name: lock_with_followers
-- Locks the timers of these jobs and of the jobs that wait for them, in one order.
SELECT array_agg(job::text) FROM (
    SELECT job FROM timers
    WHERE job IN (SELECT unnest(:jobs::uuid[]) UNION
                  SELECT c.job FROM jobs AS j JOIN chains AS c
                  ON c.tenant = j.tenant AND c.key IN (j.key, j.id::text COLLATE "C")
                  WHERE j.id = ANY (:jobs::uuid[]))
    ORDER BY job FOR NO KEY UPDATE) AS locked;

-- name: list_links
-- Returns all links of these jobs. Their timers are locked already, so the links do not change until the commit.
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
-- They are due now, or at the next instant without a decision: clocks can stand still or be set back.
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
-- An existing link keeps its mark, unless other ends count now.
INSERT INTO chains AS c (job, tenant, key, ends)
SELECT * FROM unnest(:jobs::uuid[], :tenants::text[], :keys::text[], :ends::text[])
ON CONFLICT (job, key) DO UPDATE SET is_done = c.is_done AND c.ends = excluded.ends, ends = excluded.ends;

-- name: drop_links
DELETE FROM chains WHERE job = :job::uuid AND key <> ALL (:but::text[]);

-- name: list_missing
-- Returns the names that no job of the tenant has, as its id or as its key. All names have the form of an id. Names that
-- the job `job` waits for already are left out.
SELECT n.name
FROM unnest(:names::text[]) AS n (name)
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = n.name::uuid AND j.tenant = :tenant::text)
  AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant = :tenant::text AND j.key = n.name)
  AND NOT EXISTS (SELECT 1 FROM chains AS c WHERE c.job = :job::uuid AND c.key = n.name);

-- name: is_awaited
SELECT EXISTS (SELECT 1 FROM chains WHERE tenant = :tenant::text AND key = ANY (:names::text[]));

-- name: list_chain
-- Returns the links of these jobs and of all jobs that they wait for, directly or not. A job's name is its key, or its id.
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
