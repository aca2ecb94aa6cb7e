-- Jobs with `slo` or `expect_every`.

-- name: renew_watched
UPDATE watched_jobs SET since = :now::bigint WHERE job = :job::uuid;
