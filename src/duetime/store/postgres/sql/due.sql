-- Commands that create executions: fire, manual executions, redrive.

-- name: list_epochs
-- Shared locks until the commit: a FenceShards of one of these shards waits.
SELECT shard, epoch FROM shard_epochs WHERE shard = ANY (:shards::integer[]) ORDER BY shard FOR SHARE;

-- name: fire_timers
-- Moves the page's timers, in the order of their ids, if they are still as the plan read them.
-- (`:same_…` here and below: the value of a column that is the same in every row; then its array is NULL. See columns.py.)
-- IS TRUE keeps the planner from a lookup by instant. On a new database, without statistics, it would choose that index,
-- and scan it once a shard for each timer: 30 times slower, measured.
WITH moved AS (
    UPDATE timers AS t SET due_at = coalesce(p.next_due_at, :same_next_due_ats::bigint),
                           fired = t.fired + coalesce(p.executions, :same_executions::integer)
    FROM (SELECT * FROM unnest(:jobs::uuid[], :due_ats::bigint[], :versions::integer[], :next_due_ats::bigint[],
                               :executions::integer[]) AS u (job, due_at, version, next_due_at, executions) ORDER BY job) AS p
    WHERE t.job = p.job AND (t.due_at = coalesce(p.due_at, :same_due_ats::bigint)) IS TRUE
      AND t.version = coalesce(p.version, :same_versions::integer)
    RETURNING t.job
),
counted AS MATERIALIZED (SELECT count(*) AS moved FROM moved)
SELECT CASE WHEN moved < :expected::bigint THEN coalesce((SELECT array_agg(job::text) FROM moved), ARRAY[]::text[]) END AS moved
FROM counted;

-- name: list_open_of_page
-- Returns whether each job has an open execution, and how many are held, up to :most. Their timers are locked.
SELECT p.job::text,
       EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = p.job AND NOT (
                   o.state = 'QUEUED' AND o.trigger = 'retry' AND o.attempt = 0 AND o.due_at > o.scheduled_at)
               OFFSET 0) AS is_open,
       (SELECT count(*) FROM (SELECT 1 FROM open_runs AS h WHERE h.job = p.job AND h.held LIMIT :most::bigint) AS w) AS waiting
FROM unnest(:jobs::uuid[]) AS p (job);

-- name: list_decided
-- Returns the executions whose instant has a decision already. Their timers are locked, so this does not change.
SELECT p.id::text FROM unnest(:ids::uuid[], :jobs::uuid[], :scheduled_ats::bigint[]) AS p (id, job, scheduled_at)
WHERE EXISTS (SELECT 1 FROM executions AS d
              WHERE d.job = p.job AND d.scheduled_at = p.scheduled_at AND d.extra = 0 OFFSET 0);

-- name: fire_executions
-- Writes the executions whose job has no other one open, or in this page, and returns the others, which are settled later.
-- An earlier statement has locked the timers, so the open executions of these jobs do not change until the commit.
-- If an instant has a decision already, the unique index refuses the page.
-- (OFFSET 0, here and below, makes the planner probe once a row, instead of reading the whole table into a hash.)
WITH page AS MATERIALIZED (
    SELECT p.*, CASE WHEN coalesce(p.if_open, :same_if_opens::text) = 'run' THEN false
                     WHEN coalesce(p.if_open, :same_if_opens::text) = 'settle'
                          -- A dead letter that was redriven at a rate, and is not due yet, does not count.
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

-- name: skip_executions
INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant, due_at, state, reason, ended_at)
SELECT scheduled_at, id, job, endpoint, 0, priority, trigger, tenant, scheduled_at, 'SKIPPED', :reason::text, :now::bigint
FROM unnest(:ids::uuid[], :jobs::uuid[], :tenants::text[], :scheduled_ats::bigint[], :triggers::text[],
            :priorities::smallint[], :endpoints::bigint[])
     AS p (id, job, tenant, scheduled_at, trigger, priority, endpoint);

-- name: hold_executions
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

-- name: count_reopened
-- Returns by tenant how many jobs `uncount_executions`, which follows, makes PENDING again. Their timers are locked.
SELECT t.tenant, count(*)
FROM (SELECT DISTINCT job FROM unnest(:jobs::uuid[], :or_due_ats::bigint[]) AS p (job, or_due_at) WHERE or_due_at IS NOT NULL) AS u
JOIN timers AS t ON t.job = u.job
WHERE t.status = 'COMPLETED' AND t.recurs
GROUP BY t.tenant;

-- name: uncount_executions
-- Subtracts executions that do not count, by job. If they were to be the last, the job is due again, at `or_due_at`; a
-- paused job is due then when it is resumed. A job that no longer recurs, after a change, is not due again. The timers
-- are locked.
UPDATE timers AS t
SET fired = greatest(0, t.fired - u.executions),
    due_at = CASE WHEN t.status IN ('PENDING', 'COMPLETED') AND t.recurs
                  THEN coalesce(t.due_at, u.or_due_at) ELSE t.due_at END,
    resume_at = CASE WHEN t.status = 'PAUSED' AND t.recurs
                     THEN coalesce(t.resume_at, u.or_due_at) ELSE t.resume_at END,
    status = CASE WHEN t.status = 'COMPLETED' AND t.recurs AND u.or_due_at IS NOT NULL THEN 'PENDING' ELSE t.status END
FROM unnest(:jobs::uuid[], :executions::integer[], :or_due_ats::bigint[]) AS u (job, executions, or_due_at)
WHERE t.job = u.job;

-- name: list_open_of_jobs
SELECT o.job::text, o.execution::text, o.state FROM open_runs AS o
WHERE o.job = ANY (:jobs::uuid[])
  AND NOT (o.state = 'QUEUED' AND o.trigger = 'retry' AND o.attempt = 0 AND o.due_at > o.scheduled_at)
ORDER BY o.job, o.execution FOR UPDATE;

-- name: get_job_for_execution
SELECT t.status, j.spec FROM timers AS t JOIN jobs AS j ON j.id = t.job
WHERE t.job = :job::uuid AND t.tenant = :tenant::text
FOR NO KEY UPDATE OF t;

-- name: add_executions
WITH page AS MATERIALIZED (
    SELECT p.*, row_number() OVER (PARTITION BY p.job ORDER BY p.id) + j.extra AS extra
    FROM unnest(:ids::uuid[], :jobs::uuid[], :priorities::smallint[], :endpoints::bigint[], :due_ats::bigint[])
         AS p (id, job, priority, endpoint, due_at)
    -- Once for each job, not for each row (OFFSET 0 again): thousands of one job may be redriven in the same ms.
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
