-- Statistics of ended attempts. A page of rows is one JSON parameter.

-- name: write_statistics
-- Differs from the PostgreSQL version in that nothing is locked: one thread writes.
INSERT INTO statistics (span, bucket_at, tenant, type, subject, node, tally)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value -> 6
FROM json_each(:rows) AS r JOIN statistics_rolled AS d ON d.span = r.value ->> 0
WHERE r.value ->> 1 >= d.until_at
ON CONFLICT DO UPDATE SET tally = excluded.tally;

-- name: set_rolled
UPDATE statistics_rolled SET until_at = max(until_at, :until) WHERE span = :span;

-- name: put_rolled
-- Differs from `write_statistics` in that rolled-up rows may be of any time.
INSERT INTO statistics (span, bucket_at, tenant, type, subject, node, tally)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value -> 6 FROM json_each(:rows)
WHERE true
ON CONFLICT DO UPDATE SET tally = excluded.tally;

-- name: list_rolled
-- Returns the rows of the bucket of :into that have one of these keys.
SELECT s.span, s.bucket_at, s.tenant, s.type, s.subject, s.node, s.tally
FROM json_each(:keys) AS k JOIN statistics AS s
ON s.tenant = k.value ->> 0 AND s.subject = k.value ->> 2 AND s.span = :into AND s.bucket_at = :bucket_at
   AND s.type = k.value ->> 1 AND s.node = 0;

-- name: remove_statistics
DELETE FROM statistics WHERE (tenant, subject, span, bucket_at, type, node) IN (
    SELECT value ->> 2, value ->> 4, value ->> 0, value ->> 1, value ->> 3, value ->> 5 FROM json_each(:rows));

-- name: recount_jobs
-- Differs from the PostgreSQL version in that a total is one row.
WITH counted AS (
    SELECT tenant, status, count(*) AS number FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2
),
wanted AS (
    SELECT * FROM counted UNION ALL SELECT '', status, sum(number) FROM counted GROUP BY 2
)
INSERT INTO job_totals (tenant, status, value)
SELECT coalesce(w.tenant, j.tenant), coalesce(w.status, j.status), coalesce(w.number, 0)
FROM wanted AS w FULL JOIN job_totals AS j ON j.tenant = w.tenant AND j.status = w.status
WHERE coalesce(w.number, 0) <> coalesce(j.value, 0)
ON CONFLICT DO UPDATE SET value = excluded.value;
