-- Jobs that promise something: objectives, or how often they succeed.

-- A row is a job with `slo` or `expect_every`: a search of all definitions for the few that have them would be slow.
CREATE TABLE watched_jobs (
    job          BLOB PRIMARY KEY,
    tenant       TEXT NOT NULL,
    since        INTEGER NOT NULL,  -- when it got its `expect_every`, or was resumed
    expect_every TEXT,              -- as in its definition
    slo          TEXT               -- JSON, as in its definition
) WITHOUT ROWID;
CREATE INDEX watched_jobs_of ON watched_jobs (tenant);

-- When an execution of the job last succeeded. NULL also for those that ended before this column was added.
ALTER TABLE timers ADD COLUMN last_success_at INTEGER;
