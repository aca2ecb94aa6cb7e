-- Jobs with `slo` or `expect_every`.

-- name: set_watched
INSERT INTO watched_jobs AS w (job, tenant, since, expect_every, slo)
SELECT * FROM unnest(:jobs::uuid[], :tenants::text[], :sinces::bigint[], :expectations::text[], :slos::text[])
ON CONFLICT (job) DO UPDATE SET
    since = CASE WHEN w.expect_every IS NOT DISTINCT FROM excluded.expect_every THEN w.since ELSE excluded.since END,
    expect_every = excluded.expect_every, slo = excluded.slo;

-- name: drop_watched
DELETE FROM watched_jobs WHERE job = ANY (:jobs::uuid[]);
