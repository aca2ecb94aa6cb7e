-- Jobs that start when others have ended: a row for each job that another waits for, by its key, which may come later.
CREATE TABLE chains (
    job     BLOB NOT NULL,
    tenant  TEXT NOT NULL,
    key     TEXT NOT NULL,               -- of the job that is waited for
    ends    TEXT NOT NULL,               -- which of its ends count: success, failure, any
    is_done INTEGER NOT NULL DEFAULT 0,  -- its latest end, since this job last started, is one of those
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE INDEX chains_awaited ON chains (tenant, key);
