-- Jobs that run something else than a webhook, and workers that run functions.

-- A definition says its type, so that it can be read as what it is. Until now there was one type, and it stood for itself.
UPDATE jobs SET spec = '{"type":"http_request",' || substr(spec, 2), size = size + 22 WHERE spec NOT LIKE '{"type":%';
UPDATE counters SET value = (SELECT coalesce(sum(size), 0) FROM jobs) WHERE tenant = '' AND name = 'bytes';

ALTER TABLE attempts ADD COLUMN exit_code INTEGER;

-- What nodes claim. A function has a negative endpoint: it waits for a worker, and must not be walked over by who can't
-- run it.
DROP INDEX executions_waiting;
CREATE INDEX executions_waiting ON executions (priority DESC, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;

-- What workers run: nodes hold theirs in memory.
CREATE INDEX executions_of_worker ON executions (node) WHERE state = 'RUNNING' AND endpoint < 0;

-- Workers that have joined and not ended; to the ledger each is a node.
CREATE TABLE workers (
    node       INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    functions  TEXT NOT NULL,             -- JSON
    slots      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    beats      INTEGER NOT NULL DEFAULT 0 -- signs of life so far: whoever watches looks for a change, and at no clock
);

-- How far an execution is, as its attempts said last.
CREATE TABLE progress (
    execution BLOB PRIMARY KEY,
    value     TEXT NOT NULL               -- JSON
) WITHOUT ROWID;
