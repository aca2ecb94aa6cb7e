-- Links of jobs that run after other jobs. A link names the other job by its id or by its key. If a key looks like the
-- id of another job, the id counts: so no user can replace a job by the choice of a key.

-- name: has_chains
SELECT 1 FROM chains LIMIT 1;

-- name: list_links
-- Differs from the PostgreSQL version in that it finds the waiting jobs itself; PostgreSQL has locked them before.
-- Returns all links of the jobs that wait for one of these jobs.
SELECT uuid_text(c.job), c.tenant, c.key, c.ends, c.is_done, t.status, iif(t.status = 'PAUSED', t.resume_at, t.due_at),
       iif(p.id IS NULL, NULL, uuid_text(p.id))
FROM (
    SELECT DISTINCT w.job
    FROM jsonb_each(:jobs) AS e
    CROSS JOIN jobs AS j ON j.id = unhex(e.value, '-')
    CROSS JOIN chains AS w ON w.tenant = j.tenant AND w.key IN (j.key, uuid_text(j.id))
) AS f
CROSS JOIN chains AS c ON c.job = f.job
CROSS JOIN timers AS t ON t.job = c.job
LEFT JOIN jobs AS p ON p.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.id = unhex(c.key, '-') AND i.tenant = c.tenant AND uuid_text(i.id) = c.key),
                                       (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key));

-- name: mark_links
UPDATE chains SET is_done = m.is_done
FROM (
    SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS key, value ->> 2 AS is_done FROM json_each(:marks)
) AS m
WHERE chains.job = m.job AND chains.key = m.key;

-- name: has_instant
-- Differs from the PostgreSQL version in that the caller looks for a free instant, one by one; PostgreSQL does in
-- `start_followers`.
SELECT 1 FROM executions WHERE job = unhex(:job, '-') AND scheduled_at = :at AND extra = 0
UNION ALL SELECT 1 FROM skips WHERE job = unhex(:job, '-') AND first_at = :at
LIMIT 1;

-- name: start_followers
UPDATE timers SET due_at = s.at
FROM (SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS at FROM json_each(:starts)) AS s
WHERE timers.job = s.job;

-- name: add_links
-- An existing link keeps its mark, unless other ends count now.
INSERT INTO chains (job, tenant, key, ends)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3 FROM json_each(:links) WHERE true
ON CONFLICT DO UPDATE SET is_done = is_done AND ends = excluded.ends, ends = excluded.ends;

-- name: drop_links
DELETE FROM chains WHERE job = unhex(:job, '-') AND key NOT IN (SELECT value FROM json_each(:but));

-- name: list_missing
-- Returns the names that no job of the tenant has, as its id or as its key. All names have the form of an id. Names that
-- the job `job` waits for already are left out.
SELECT n.value
FROM json_each(:names) AS n
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = unhex(n.value, '-') AND j.tenant = :tenant)
  AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant = :tenant AND j.key = n.value)
  AND NOT EXISTS (SELECT 1 FROM chains AS c WHERE c.job = unhex(:job, '-') AND c.key = n.value);

-- name: is_awaited
SELECT 1 FROM chains WHERE tenant = :tenant AND key IN (SELECT value FROM json_each(:names)) LIMIT 1;

-- name: list_chain
-- Returns the links of these jobs and of all jobs that they wait for, directly or not. A job's name is its key, or its id.
WITH RECURSIVE up (job) AS (
    SELECT unhex(value, '-') FROM json_each(:jobs)
    UNION
    SELECT coalesce((SELECT i.id FROM jobs AS i WHERE i.id = unhex(c.key, '-') AND i.tenant = c.tenant AND uuid_text(i.id) = c.key),
                    (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
    FROM up CROSS JOIN chains AS c ON c.job = up.job
)
SELECT coalesce(j.key, uuid_text(j.id)), coalesce(a.key, uuid_text(a.id)), j.owner
FROM up CROSS JOIN jobs AS j ON j.id = up.job CROSS JOIN chains AS c ON c.job = j.id
CROSS JOIN jobs AS a ON a.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.id = unhex(c.key, '-') AND i.tenant = c.tenant AND uuid_text(i.id) = c.key),
                                        (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
LIMIT :most;
