-- Jobs that come after others, and jobs whose one run is long over.
-- A link names the job that is waited for by its id or by its key. Where a key looks like the id of another job, the id
-- counts: nobody can take an end's place by choosing a key.

-- name: has_chains
SELECT 1 FROM chains LIMIT 1;

-- name: list_links
-- All links of the jobs that wait for one of these.
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
SELECT 1 FROM executions WHERE job = unhex(:job, '-') AND scheduled_at = :at AND extra = 0
UNION ALL SELECT 1 FROM skips WHERE job = unhex(:job, '-') AND first_at = :at
LIMIT 1;

-- name: start_followers
UPDATE timers SET due_at = s.at
FROM (SELECT unhex(value ->> 0, '-') AS job, value ->> 1 AS at FROM json_each(:starts)) AS s
WHERE timers.job = s.job;

-- name: add_links
-- A link that was there keeps its mark, unless other ends count from here on.
INSERT INTO chains (job, tenant, key, ends)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3 FROM json_each(:links) WHERE true
ON CONFLICT DO UPDATE SET is_done = is_done AND ends = excluded.ends, ends = excluded.ends;

-- name: drop_links
DELETE FROM chains WHERE job = unhex(:job, '-') AND key NOT IN (SELECT value FROM json_each(:but));

-- name: list_missing
-- Of these names, all of the form of an id: those that no job of the tenant has, as its id or as its key. What the job
-- `job` waits for already is not asked about again.
SELECT n.value
FROM json_each(:names) AS n
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = unhex(n.value, '-') AND j.tenant = :tenant)
  AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.tenant = :tenant AND j.key = n.value)
  AND NOT EXISTS (SELECT 1 FROM chains AS c WHERE c.job = unhex(:job, '-') AND c.key = n.value);

-- name: is_awaited
SELECT 1 FROM chains WHERE tenant = :tenant AND key IN (SELECT value FROM json_each(:names)) LIMIT 1;

-- name: list_chain
-- The links of these jobs and of all that they come after, near and far. Jobs have the name of their key, or of their id.
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

-- name: list_swept_page
SELECT uuid_text(last), number FROM (
    SELECT max(id) AS last, count(*) AS number
    FROM (SELECT id FROM jobs WHERE id > unhex(:after, '-') ORDER BY id LIMIT :limit));

-- name: list_to_sweep
SELECT uuid_text(j.id), j.tenant, j.size, json_type(j.spec, '$.tags."' || :tag || '"') IS NOT NULL
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id > unhex(:after, '-') AND j.id <= unhex(:last, '-')
  AND j.key IS NULL AND (t.status = 'CANCELLED' OR t.status = 'COMPLETED' AND t.recurs = 0)
  AND j.updated_at < :before AND coalesce(t.last_run_at, 0) < :before
  AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.job = j.id)
  AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = j.id);

-- name: list_delivered
-- Notifications that were sent with their only run: their history goes with them.
SELECT uuid_text(j.id), j.tenant, j.size, 1
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id > unhex(:after, '-') AND j.id <= unhex(:last, '-')
  AND j.key IS NULL AND t.status = 'COMPLETED' AND t.recurs = 0 AND t.last_state = 'COMPLETED' AND t.runs = 1
  AND j.updated_at < :before AND t.last_run_at < :before
  AND json_type(j.spec, '$.tags."' || :tag || '"') IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM executions AS o WHERE o.job = j.id AND o.state IN ('QUEUED', 'RUNNING', 'RETRYING'))
  AND (SELECT count(*) FROM (SELECT 1 FROM executions AS e WHERE e.job = j.id LIMIT 11)) <= 10
  AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = j.id);

-- name: list_history
SELECT '[' || group_concat('"' || uuid_text(e.id) || '"') || ']'
FROM json_each(:jobs) AS j CROSS JOIN executions AS e ON e.job = unhex(j.value, '-');

-- name: sweep_links
DELETE FROM chains WHERE job IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: sweep_timers
DELETE FROM timers WHERE job IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: sweep_jobs
DELETE FROM jobs WHERE id IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: list_owners
SELECT uuid_text(id), owner FROM jobs WHERE id IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: set_reason
UPDATE executions SET reason = coalesce(reason, :reason) WHERE id = unhex(:execution, '-');

-- name: get_last_limit
SELECT tenant, user_id, name, number FROM (
    SELECT tenant, user_id, name, count(*) OVER () AS number FROM (
        SELECT tenant, user_id, name FROM limits WHERE (tenant, user_id, name) > (:tenant, :user_id, :name)
        ORDER BY tenant, user_id, name LIMIT :limit))
ORDER BY tenant DESC, user_id DESC, name DESC LIMIT 1;

-- name: sweep_limits
DELETE FROM limits
WHERE (tenant, user_id, name) > (:tenant, :user_id, :name) AND (tenant, user_id, name) <= (:last_tenant, :last_user, :last_name)
  AND full_at < :before;

-- name: get_last_counter
SELECT tenant, name, number FROM (
    SELECT tenant, name, count(*) OVER () AS number FROM (
        SELECT tenant, name FROM counters WHERE (tenant, name) > (:tenant, :name) ORDER BY tenant, name LIMIT :limit))
ORDER BY tenant DESC, name DESC LIMIT 1;

-- name: sweep_counters
DELETE FROM counters
WHERE (tenant, name) > (:tenant, :name) AND (tenant, name) <= (:last_tenant, :last_name) AND value = 0 AND tenant <> '';
