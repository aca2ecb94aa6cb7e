-- Jobs that run something else than a webhook, and workers that run functions.

-- A definition says its type, so that it can be read as what it is. Until now there was one type, and it stood for itself.
UPDATE jobs SET spec = '{"type":"http_request",' || substr(spec, 2), size = size + 22 WHERE spec NOT LIKE '{"type":%';
DELETE FROM counters WHERE tenant = '' AND name = 'bytes';
INSERT INTO counters (tenant, name, day, slot, value) SELECT '', 'bytes', 0, 0, coalesce(sum(size), 0) FROM jobs;

ALTER TABLE attempts ADD COLUMN exit_code integer;

-- What nodes claim. A function has a negative endpoint: it waits for a worker, and must not be walked over by who can't
-- run it.
DROP INDEX open_runs_waiting;
CREATE INDEX open_runs_waiting ON open_runs (priority, due_at) WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0;

-- Workers that have joined and not ended; to the ledger each is a node.
CREATE TABLE workers (
    node       integer PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    functions  text NOT NULL,             -- JSON
    slots      integer NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    beats      bigint NOT NULL DEFAULT 0  -- signs of life so far: whoever watches looks for a change, and at no clock
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- How far an execution is, as its attempts said last.
CREATE TABLE progress (
    scheduled_at bigint NOT NULL,         -- of the execution
    execution    uuid NOT NULL,
    value        text NOT NULL,           -- JSON
    PRIMARY KEY (scheduled_at, execution)
);
