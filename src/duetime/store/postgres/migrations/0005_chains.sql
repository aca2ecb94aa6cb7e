-- Jobs that start when others have ended: a row for each job that another waits for, by its key, which may come later.
-- Whoever reads or changes a job's rows holds its timer.
CREATE TABLE chains (
    job     uuid NOT NULL,
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,       -- of the job that is waited for
    ends    text COLLATE "C" NOT NULL,       -- which of its ends count: success, failure, any
    is_done boolean NOT NULL DEFAULT false,  -- its latest end, since this job last started, is one of those
    PRIMARY KEY (job, key)
) WITH (fillfactor = 75);
CREATE INDEX chains_awaited ON chains (tenant, key);
