-- Ids are the 16 bytes of a UUIDv7, instants are ms since the epoch.

-- Wide, and written only when a person changes something.
CREATE TABLE jobs (
    id           BLOB PRIMARY KEY,
    tenant       TEXT NOT NULL,
    key          TEXT,
    name         TEXT NOT NULL,
    type         TEXT NOT NULL,
    owner        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    paused_by    TEXT,
    paused_at    INTEGER,
    pause_reason TEXT,
    spec         TEXT NOT NULL  -- JSON, as the person wrote it, defaults left out
);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (tenant, name, id);

-- Narrow, and written at each fire and finish: when a job is next due, and how it has gone.
CREATE TABLE timers (
    job         BLOB PRIMARY KEY,
    tenant      TEXT NOT NULL,
    shard       INTEGER NOT NULL,
    status      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    recurs      INTEGER NOT NULL,
    due_at      INTEGER,            -- NULL: no run is left, or paused
    resume_at   INTEGER,            -- while paused: the instant it would have been due
    fired       INTEGER NOT NULL DEFAULT 0,
    runs        INTEGER NOT NULL DEFAULT 0,
    successes   INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    busy_ms     INTEGER NOT NULL DEFAULT 0,
    last_run_at INTEGER,
    last_state  TEXT
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE executions (
    id               BLOB PRIMARY KEY,
    job              BLOB NOT NULL,
    tenant           TEXT NOT NULL,
    scheduled_at     INTEGER NOT NULL,
    extra            INTEGER NOT NULL,  -- 0: of the timetable; 1, 2, …: manual runs and retries asked for in that ms
    trigger          TEXT NOT NULL,
    state            TEXT NOT NULL,
    reason           TEXT,
    priority         INTEGER NOT NULL,
    endpoint         INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,  -- when it may run (again)
    held             INTEGER NOT NULL DEFAULT 0,  -- waits for an earlier execution of its job to end
    attempt          INTEGER NOT NULL,
    token            INTEGER NOT NULL,
    node             INTEGER,
    started_at       INTEGER,
    ended_at         INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    dead             INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- Invariant 1: at most one execution for a job and an instant of its timetable.
CREATE UNIQUE INDEX executions_instant ON executions (job, scheduled_at, extra);
CREATE INDEX executions_open ON executions (job, state) WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING');
CREATE INDEX executions_waiting ON executions (priority DESC, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0;
CREATE INDEX executions_waiting_at ON executions (priority DESC, endpoint, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0;
CREATE INDEX executions_held ON executions (job, scheduled_at, extra) WHERE held = 1;
CREATE INDEX executions_dead ON executions (tenant, id) WHERE dead = 1;

CREATE TABLE attempts (
    execution     BLOB NOT NULL,
    attempt       INTEGER NOT NULL,
    node          INTEGER,
    started_at    INTEGER,
    ended_at      INTEGER NOT NULL,
    error_type    TEXT,
    error_message TEXT,
    http_status   INTEGER,
    response      TEXT,
    PRIMARY KEY (execution, attempt)
) WITHOUT ROWID;

-- The ledger of instants that were decided against in spans.
CREATE TABLE skips (
    job        BLOB NOT NULL,
    tenant     TEXT NOT NULL,
    first_at   INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    count      INTEGER,             -- NULL: too many to count
    reason     TEXT NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (job, first_at)
) WITHOUT ROWID;
CREATE INDEX skips_age ON skips (until_at);

CREATE TABLE counters (
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    response    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- One row for each start of a process. A node that is void (ended_at is set) may write nothing.
CREATE TABLE nodes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER
);
