-- Statistics of ended attempts, reports of nodes, and totals of jobs by status.

-- A row is the tally of one bucket of time, [bucket_at, bucket_at + span): of one tenant, type of job, subject and node;
-- see domain/statistics.py. The node replaces its rows of the current buckets, once a second.
CREATE TABLE statistics (
    span      INTEGER NOT NULL,  -- ms: ten seconds, a minute or an hour
    bucket_at INTEGER NOT NULL,
    tenant    TEXT NOT NULL,     -- '*': of tenants beyond the limit
    type      TEXT NOT NULL,     -- of the job; '': skipped before there was an execution
    subject   TEXT NOT NULL,     -- '': all of the tenant and type; 'job:…' or 'tag:…': a watched one
    node      INTEGER NOT NULL,  -- 0: of all nodes, rolled up
    tally     TEXT NOT NULL,     -- JSON
    PRIMARY KEY (tenant, subject, span, bucket_at, type, node)
) WITHOUT ROWID;
CREATE INDEX statistics_bucket ON statistics (span, bucket_at);

-- A row says up to when the rows of a span are rolled up: no node writes earlier buckets.
CREATE TABLE statistics_rolled (
    span     INTEGER PRIMARY KEY,
    until_at INTEGER NOT NULL
);
INSERT INTO statistics_rolled (span, until_at) VALUES (10000, 0), (60000, 0), (3600000, 0);

-- A row is what a node last reported about itself.
CREATE TABLE node_reports (
    node  INTEGER PRIMARY KEY,
    at    INTEGER NOT NULL,
    facts TEXT NOT NULL  -- JSON
);

-- A row is a total of a tenant: its jobs of a status. Jobs that are PENDING are all the others. The tenant '' has the
-- totals of all tenants.
CREATE TABLE job_totals (
    tenant TEXT NOT NULL,
    status TEXT NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, status)
) WITHOUT ROWID;
INSERT INTO job_totals (tenant, status, value)
SELECT tenant, status, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2
UNION ALL
SELECT '', status, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2;
