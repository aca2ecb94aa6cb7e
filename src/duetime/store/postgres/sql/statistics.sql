-- Statistics of ended attempts. A page of rows is sent as arrays, one for each column.

-- name: write_statistics
-- A shared lock until the commit: a roll-up of these spans waits, or has ended and its bound is read.
WITH rolled AS MATERIALIZED (
    SELECT span, until_at FROM statistics_rolled WHERE span = ANY (:spans::integer[]) ORDER BY span FOR SHARE
)
INSERT INTO statistics AS s (span, bucket_at, tenant, type, subject, node, tally)
SELECT p.* FROM unnest(:spans::integer[], :bucket_ats::bigint[], :tenants::text[], :types::text[], :subjects::text[],
                       :nodes::integer[], :tallies::text[])
    AS p (span, bucket_at, tenant, type, subject, node, tally)
JOIN rolled AS r ON r.span = p.span AND p.bucket_at >= r.until_at
ORDER BY p.tenant, p.subject, p.span, p.bucket_at, p.type
ON CONFLICT (tenant, subject, span, bucket_at, type, node) DO UPDATE SET tally = excluded.tally
RETURNING 1;

-- name: set_rolled
-- The first statement of a roll-up, and its lock: the statements after it see what any writer before it has written.
UPDATE statistics_rolled SET until_at = greatest(until_at, :until::bigint) WHERE span = :span::integer;

-- name: put_rolled
-- Differs from `write_statistics` in that rolled-up rows may be of any time.
INSERT INTO statistics AS s (span, bucket_at, tenant, type, subject, node, tally)
SELECT * FROM unnest(:spans::integer[], :bucket_ats::bigint[], :tenants::text[], :types::text[], :subjects::text[],
                     :nodes::integer[], :tallies::text[])
ON CONFLICT (tenant, subject, span, bucket_at, type, node) DO UPDATE SET tally = excluded.tally;

-- name: list_rolled
-- Returns the rows of the bucket of :into that have one of these keys.
SELECT s.span, s.bucket_at, s.tenant, s.type, s.subject, s.node, s.tally
FROM unnest(:tenants::text[], :types::text[], :subjects::text[]) AS k (tenant, type, subject)
JOIN statistics AS s ON s.tenant = k.tenant AND s.subject = k.subject AND s.span = :into::integer
    AND s.bucket_at = :bucket_at::bigint AND s.type = k.type AND s.node = 0;

-- name: remove_statistics
DELETE FROM statistics AS s
USING unnest(:spans::integer[], :bucket_ats::bigint[], :tenants::text[], :types::text[], :subjects::text[],
             :nodes::integer[]) AS p (span, bucket_at, tenant, type, subject, node)
WHERE s.tenant = p.tenant AND s.subject = p.subject AND s.span = p.span AND s.bucket_at = p.bucket_at
  AND s.type = p.type AND s.node = p.node;

-- name: lock_recount
SELECT pg_advisory_xact_lock(hashtextextended('duetime recount', 0));

-- name: recount_jobs
-- One snapshot: totals change in the same transactions as timers, so the difference is exact, whatever is written
-- meanwhile; it is added to the totals, which are sums.
WITH counted AS (
    SELECT tenant, status, count(*) AS number FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2
),
stored AS (
    SELECT tenant, status, sum(value) AS number FROM job_totals GROUP BY 1, 2
),
wanted AS (
    SELECT * FROM counted UNION ALL SELECT '', status, sum(number) FROM counted GROUP BY 2
)
INSERT INTO job_totals AS j (tenant, status, slot, value)
SELECT tenant, status, -1, coalesce(w.number, 0) - coalesce(s.number, 0)
FROM wanted AS w FULL JOIN stored AS s USING (tenant, status)
WHERE coalesce(w.number, 0) <> coalesce(s.number, 0)
ORDER BY 1, 2
ON CONFLICT (tenant, status, slot) DO UPDATE SET value = j.value + excluded.value
RETURNING 1;
