-- Rows that a transaction writes with its last statement: totals, used limits, the audit, and the number of the batch.

-- name: lock_room
SELECT pg_advisory_xact_lock(hashtextextended('duetime room', 0));

-- name: get_loads
SELECT tenant, coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0)::bigint,
       coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)::bigint
FROM counters WHERE tenant = ANY (:tenants::text[]) AND name IN ('jobs', 'bytes') AND day = 0 GROUP BY tenant;

-- name: lock_limits
SELECT l.tenant, l.user_id, l.name, l.full_at
FROM unnest(:tenants::text[], :user_ids::text[], :names::text[]) AS p (tenant, user_id, name)
JOIN limits AS l ON l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
ORDER BY l.tenant, l.user_id, l.name FOR NO KEY UPDATE OF l;

-- name: add_limits
INSERT INTO limits (tenant, user_id, name, full_at)
SELECT *, 0 FROM unnest(:tenants::text[], :user_ids::text[], :names::text[]) AS p (tenant, user_id, name) ORDER BY 1, 2, 3
ON CONFLICT DO NOTHING;

-- name: end_batch
-- The last statement before COMMIT: it writes totals, and the batch number, by which a writer in doubt finds out whether
-- the batch was committed. Rows of totals are written in one order, and each writer has its own: there are no deadlocks.
WITH counted AS (
    INSERT INTO counters AS c (tenant, name, day, slot, value)
    SELECT p.tenant, p.name, p.day, :slot::smallint, p.value
    FROM unnest(:tenants::text[], :names::text[], :days::integer[], :deltas::bigint[]) AS p (tenant, name, day, value)
    ORDER BY p.tenant, p.name, p.day
    ON CONFLICT (tenant, name, day, slot) DO UPDATE SET value = c.value + excluded.value
),
classed AS (
    INSERT INTO job_totals AS j (tenant, status, slot, value)
    SELECT p.tenant, p.status, :slot::smallint, p.value
    FROM unnest(:job_tenants::text[], :job_statuses::text[], :job_deltas::bigint[]) AS p (tenant, status, value)
    ORDER BY p.tenant, p.status
    ON CONFLICT (tenant, status, slot) DO UPDATE SET value = j.value + excluded.value
)
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, :batch::bigint)
ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = now();

-- name: end_batch_of_people
-- As end_batch, with the rows of users' commands: used limits and the page of the audit. `taken` is domain.limits.take for
-- limits with enough left; if it returns fewer than wanted, the batch is applied again with the limits locked. The page's
-- link is computed here from the head of this writer's chain, which is a lock for writers that share the chain.
WITH counted AS (
    INSERT INTO counters AS c (tenant, name, day, slot, value)
    SELECT p.tenant, p.name, p.day, :slot::smallint, p.value
    FROM unnest(:tenants::text[], :names::text[], :days::integer[], :deltas::bigint[]) AS p (tenant, name, day, value)
    ORDER BY p.tenant, p.name, p.day
    ON CONFLICT (tenant, name, day, slot) DO UPDATE SET value = c.value + excluded.value
),
classed AS (
    INSERT INTO job_totals AS j (tenant, status, slot, value)
    SELECT p.tenant, p.status, :slot::smallint, p.value
    FROM unnest(:job_tenants::text[], :job_statuses::text[], :job_deltas::bigint[]) AS p (tenant, status, value)
    ORDER BY p.tenant, p.status
    ON CONFLICT (tenant, status, slot) DO UPDATE SET value = j.value + excluded.value
),
limited AS (
    UPDATE limits AS l SET full_at = p.full_at
    FROM unnest(:limit_tenants::text[], :limit_users::text[], :limit_names::text[], :full_ats::bigint[])
        AS p (tenant, user_id, name, full_at)
    WHERE l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
),
wanted AS (
    SELECT l.*, p.now, p.count * p.emission AS cost, p.bucket
    FROM unnest(:take_tenants::text[], :take_users::text[], :take_names::text[], :take_nows::bigint[],
                :take_counts::bigint[], :emissions::bigint[], :buckets::bigint[])
        AS p (tenant, user_id, name, now, count, emission, bucket)
    JOIN limits AS l ON l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
    ORDER BY l.tenant, l.user_id, l.name FOR NO KEY UPDATE OF l
),
taken AS (
    UPDATE limits AS l SET full_at = greatest(w.full_at, w.now) + w.cost
    FROM wanted AS w
    WHERE l.tenant = w.tenant AND l.user_id = w.user_id AND l.name = w.name
      AND greatest(w.full_at, w.now) + w.cost - w.now <= w.bucket
    RETURNING 1
),
head AS (
    INSERT INTO audit_heads AS h (chain, link, hash)
    SELECT :slot::smallint, 1, sha256(:first::bytea || :digest::bytea) WHERE :digest::bytea IS NOT NULL
    ON CONFLICT (chain) DO UPDATE SET link = h.link + 1, hash = sha256(h.hash || :digest::bytea)
    RETURNING link, hash
),
linked AS (
    INSERT INTO audit_links (chain, link, hash) SELECT :slot::smallint, link, hash FROM head
),
noted AS (
    INSERT INTO audit (chain, link, position, tenant, resource, entry)
    SELECT :slot::smallint, h.link, p.position, p.tenant, p.resource, p.entry
    FROM head AS h CROSS JOIN unnest(:entry_tenants::text[], :resources::text[], :entries::text[])
        WITH ORDINALITY AS p (tenant, resource, entry, position)
    ORDER BY p.position
)
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, :batch::bigint)
ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = now()
RETURNING (SELECT count(*) FROM taken),
          (SELECT coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0)::bigint FROM counters WHERE tenant = '' AND day = 0),
          (SELECT coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)::bigint FROM counters WHERE tenant = '' AND day = 0);

-- name: get_last_batch
-- Waits until no transaction of this writer is open. Then returns its last committed batch.
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, -1)
ON CONFLICT (writer) DO UPDATE SET at = now()
RETURNING batch;
