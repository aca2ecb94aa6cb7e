-- Statistics of ended attempts, reports of nodes, and totals of jobs by status.

-- A row is the tally of one bucket of time, [bucket_at, bucket_at + span): of one tenant, type of job, subject and node;
-- see domain/statistics.py. Each node replaces its own rows of the current buckets, once a second.
CREATE TABLE statistics (
    span      integer NOT NULL,              -- ms: ten seconds, a minute or an hour
    bucket_at bigint NOT NULL,
    tenant    text COLLATE "C" NOT NULL,     -- '*': of tenants beyond the limit
    type      text COLLATE "C" NOT NULL,     -- of the job; '': skipped before there was an execution
    subject   text COLLATE "C" NOT NULL,     -- '': all of the tenant and type; 'job:…' or 'tag:…': a watched one
    node      integer NOT NULL,              -- 0: of all nodes, rolled up
    tally     text NOT NULL,                 -- JSON
    PRIMARY KEY (tenant, subject, span, bucket_at, type, node)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX statistics_bucket ON statistics (span, bucket_at);

-- A row says up to when the rows of a span are rolled up: no node writes earlier buckets. It is a lock, too.
CREATE TABLE statistics_rolled (
    span     integer PRIMARY KEY,
    until_at bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO statistics_rolled (span, until_at) VALUES (10000, 0), (60000, 0), (3600000, 0);

-- A row is what a node last reported about itself.
CREATE TABLE node_reports (
    node  integer PRIMARY KEY,
    at    bigint NOT NULL,
    facts text NOT NULL  -- JSON
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- A row is a part of a total of a tenant: its jobs of a status, by writer, as in `counters`. Jobs that are PENDING are all
-- the others. The tenant '' has the totals of all tenants. (A table of its own: in `counters`, nodes of the version before
-- would take these for executions.)
CREATE TABLE job_totals (
    tenant text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    slot   smallint NOT NULL,
    value  bigint NOT NULL,
    PRIMARY KEY (tenant, status, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO job_totals (tenant, status, slot, value)
SELECT tenant, status, -1, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2
UNION ALL
SELECT '', status, -1, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY 1, 2;
