-- Jobs with `slo` or `expect_every`.

-- name: set_watched
INSERT INTO watched_jobs (job, tenant, since, expect_every, slo)
SELECT unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:jobs)
WHERE true
ON CONFLICT (job) DO UPDATE SET
    since = iif(watched_jobs.expect_every IS excluded.expect_every, watched_jobs.since, excluded.since),
    expect_every = excluded.expect_every, slo = excluded.slo;

-- name: drop_watched
DELETE FROM watched_jobs WHERE job IN (SELECT unhex(value, '-') FROM json_each(:jobs));
