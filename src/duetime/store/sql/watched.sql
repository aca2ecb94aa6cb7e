-- Jobs with `slo` or `expect_every`.

-- name: renew_watched
UPDATE watched_jobs SET since = :now::bigint WHERE job = :job::uuid;

-- name: count_watched
SELECT count(slo), count(expect_every) FROM watched_jobs WHERE tenant = :tenant::text;
