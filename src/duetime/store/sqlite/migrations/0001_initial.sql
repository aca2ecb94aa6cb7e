-- The schema of a data folder. An id of a job or an execution is the 16 bytes of its UUIDv7; instants are milliseconds
-- since the epoch.


-- Jobs

-- A row is a job as a person defined it. Rows are wide, and change only when a person changes the job.
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
    size         INTEGER NOT NULL DEFAULT 0,  -- bytes that the job counts for; see domain/capacity.py
    spec         TEXT NOT NULL                -- JSON, as the person wrote it, without defaults. Last: it may be long
);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (tenant, name, id);
-- Without identity, all jobs belong to the user `local` of the tenant `default`: these indexes leave them out.
CREATE INDEX jobs_tenant ON jobs (tenant, id) WHERE tenant <> 'default';
CREATE INDEX jobs_owner ON jobs (tenant, owner, id) WHERE owner <> 'local';

-- A row is the changing part of a job: when it is next due, and how many executions it had. Rows are narrow, and change
-- with each fire and each finish.
CREATE TABLE timers (
    job         BLOB PRIMARY KEY,
    tenant      TEXT NOT NULL,
    shard       INTEGER NOT NULL,
    status      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    recurs      INTEGER NOT NULL,
    due_at      INTEGER,            -- NULL: no execution is left, or the job is paused
    resume_at   INTEGER,            -- while the job is paused: the instant at which it would be due
    fired       INTEGER NOT NULL DEFAULT 0,
    runs        INTEGER NOT NULL DEFAULT 0,
    successes   INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    busy_ms     INTEGER NOT NULL DEFAULT 0,
    last_run_at INTEGER,
    last_state  TEXT
) WITHOUT ROWID;
-- By tenant within an instant: a read skips all timers of one tenant and instant in one step.
CREATE INDEX timers_due ON timers (due_at, tenant) WHERE due_at IS NOT NULL;

-- A row is one job that another job waits for. The key may be of a job that does not exist yet.
CREATE TABLE chains (
    job     BLOB NOT NULL,               -- the job that waits
    tenant  TEXT NOT NULL,
    key     TEXT NOT NULL,               -- of the job that it waits for
    ends    TEXT NOT NULL,               -- the ends that count: success, failure, any
    is_done INTEGER NOT NULL DEFAULT 0,  -- 1: the latest end, after `job` last started, is one of them
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE INDEX chains_awaited ON chains (tenant, key);


-- Executions

-- A row is one execution of a job, from the decision to run it to its end.
CREATE TABLE executions (
    id               BLOB PRIMARY KEY,
    job              BLOB NOT NULL,
    tenant           TEXT NOT NULL,
    scheduled_at     INTEGER NOT NULL,
    extra            INTEGER NOT NULL,            -- 0: scheduled; 1, 2, …: manual runs and redrives of that ms
    trigger          TEXT NOT NULL,
    state            TEXT NOT NULL,
    reason           TEXT,
    priority         INTEGER NOT NULL,
    endpoint         INTEGER NOT NULL,            -- negative: of a function, which only a worker runs
    due_at           INTEGER NOT NULL,            -- when its next attempt may start
    held             INTEGER NOT NULL DEFAULT 0,  -- 1: waits for an earlier execution of its job to end
    attempt          INTEGER NOT NULL,
    token            INTEGER NOT NULL,
    node             INTEGER,
    started_at       INTEGER,
    ended_at         INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    dead             INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- Invariant 1: a job has at most one scheduled execution for an instant.
CREATE UNIQUE INDEX executions_instant ON executions (job, scheduled_at, extra);
CREATE INDEX executions_open ON executions (job, state) WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING');
CREATE INDEX executions_held ON executions (job, scheduled_at, extra) WHERE held = 1;
CREATE INDEX executions_dead ON executions (tenant, id) WHERE dead = 1;
CREATE INDEX executions_tenant ON executions (tenant, id) WHERE tenant <> 'default';
-- What workers run. (Nodes hold their own executions in memory.)
CREATE INDEX executions_of_worker ON executions (node) WHERE state = 'RUNNING' AND endpoint < 0;
-- What nodes claim: by tenant first, so that the backlog of one tenant does not delay another. Executions of functions
-- wait for workers; the claim of a node does not read them.
CREATE INDEX executions_waiting ON executions (tenant, priority DESC, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
-- What nodes claim for some endpoints, and workers for their functions.
CREATE INDEX executions_waiting_at ON executions (tenant, priority DESC, endpoint, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0;
-- Which tenants have executions that are due.
CREATE INDEX executions_waiting_of ON executions (tenant, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
-- When the next execution of any tenant is due.
CREATE INDEX executions_waiting_due ON executions (due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;

-- A row is one ended attempt of an execution.
CREATE TABLE attempts (
    execution     BLOB NOT NULL,
    attempt       INTEGER NOT NULL,
    node          INTEGER,
    started_at    INTEGER,
    ended_at      INTEGER NOT NULL,
    http_status   INTEGER,
    exit_code     INTEGER,
    error_type    TEXT,
    error_message TEXT,
    response      TEXT,
    PRIMARY KEY (execution, attempt)
) WITHOUT ROWID;

-- A row is the latest progress that an execution has reported.
CREATE TABLE progress (
    execution BLOB PRIMARY KEY,
    value     TEXT NOT NULL  -- JSON
) WITHOUT ROWID;

-- A row is a span of scheduled instants of a job that have no executions, and the reason.
CREATE TABLE skips (
    job        BLOB NOT NULL,
    tenant     TEXT NOT NULL,
    first_at   INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    count      INTEGER,  -- NULL: too many to count
    reason     TEXT NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (job, first_at)
) WITHOUT ROWID;
CREATE INDEX skips_age ON skips (until_at);


-- Nodes and workers

-- A row is one start of a process. A node whose `ended_at` is set is fenced: the store refuses its writes.
CREATE TABLE nodes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER
);
CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;

-- A row is the latest owner of a shard: only this node may fire the timers of the shard.
CREATE TABLE shard_epochs (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    node  INTEGER NOT NULL
);

-- A row is a worker that has joined and has not ended. It is also a row of `nodes`.
CREATE TABLE workers (
    node       INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    functions  TEXT NOT NULL,              -- JSON
    slots      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    beats      INTEGER NOT NULL DEFAULT 0  -- heartbeats so far: a watcher waits for a change, and compares no clocks
);


-- Targets: what executions call, and what is called when they end

-- A row is a URL that has failed after its last success; see domain/breaker.py. A circuit that closes stays for a
-- while, with no failures, so that nodes read that it has closed.
CREATE TABLE circuits (
    id            INTEGER PRIMARY KEY,  -- a hash of the tenant and the URL
    tenant        TEXT NOT NULL,
    url           TEXT NOT NULL,        -- without its query
    failures      INTEGER NOT NULL,     -- consecutive executions that failed for good
    opened_at     INTEGER,
    next_probe_at INTEGER,
    probe         TEXT,                 -- the execution that tries the URL
    touched_at    INTEGER NOT NULL,
    changed       INTEGER NOT NULL DEFAULT 0  -- the number of its last change; nodes read the circuits after a number
);
CREATE INDEX circuits_changed ON circuits (changed);
CREATE INDEX circuits_latest ON circuits ((opened_at IS NULL), touched_at DESC, id) WHERE failures > 0;
CREATE INDEX circuits_touched ON circuits (touched_at);
CREATE INDEX circuits_of ON circuits (tenant, (opened_at IS NULL), touched_at DESC, id);

-- The one row is the number of the last change of `circuits`.
CREATE TABLE circuit_changes (last INTEGER NOT NULL);
INSERT INTO circuit_changes (last) VALUES (0);

-- A row is a database that SQL jobs of a tenant may use, by its name.
CREATE TABLE connections (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,  -- encrypted: it has a password
    shown      TEXT NOT NULL,  -- the URL without the password
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- A row is a URL that is notified of events of a tenant.
CREATE TABLE subscriptions (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    url        TEXT NOT NULL,
    events     TEXT NOT NULL,  -- JSON
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
) WITHOUT ROWID;

-- A row is the signing key of a tenant that has rotated it: the version that signs, and until when the version before
-- it signs too.
CREATE TABLE signing_keys (
    tenant         TEXT PRIMARY KEY,
    version        INTEGER NOT NULL,
    previous_until INTEGER NOT NULL,
    rotated_at     INTEGER NOT NULL,
    rotated_by     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX signing_keys_rotated ON signing_keys (rotated_at);


-- Users and tenants

-- A row is an API key.
CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    tier         TEXT NOT NULL,
    scopes       TEXT NOT NULL,  -- JSON
    secret_hash  TEXT NOT NULL,  -- SHA-256, hex
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;
CREATE INDEX api_keys_of ON api_keys (tenant, created_at, id);
-- By the instant at which a key ended: revoked or expired, the earlier of the two. (min() is NULL if either is.)
CREATE INDEX api_keys_over ON api_keys (coalesce(min(revoked_at, expires_at), revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- A row is what a user has used of a rate limit; see domain/limits.py.
CREATE TABLE limits (
    tenant  TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name    TEXT NOT NULL,
    full_at INTEGER NOT NULL,  -- the instant, in microseconds, at which the bucket is full again
    PRIMARY KEY (tenant, user_id, name)
) WITHOUT ROWID;

-- A row is a total of a tenant: its jobs, their bytes, its executions by state. The tenant '' has the totals of jobs
-- and bytes of all tenants.
CREATE TABLE counters (
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO counters (tenant, name, value) VALUES ('', 'jobs', 0), ('', 'bytes', 0);

-- A row is the response to a request that named an idempotency key.
CREATE TABLE idempotency_keys (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    response    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);


-- The audit; see domain/audit.py

-- A row is one change. Rows are only appended, and pruned from the oldest on.
CREATE TABLE audit (
    number   INTEGER PRIMARY KEY,  -- its link * 2^20 + its place in the page
    tenant   TEXT NOT NULL,        -- a copy out of `entry`, to search by
    resource TEXT NOT NULL,        -- a copy out of `entry`, to search by
    entry    TEXT NOT NULL         -- JSON: the text that is hashed
);
CREATE INDEX audit_resource ON audit (tenant, resource, number);

-- A row is one commit: the hash of the link before it and of the entries of the commit.
CREATE TABLE audit_links (
    link INTEGER PRIMARY KEY,
    hash BLOB NOT NULL
);

-- A row is the last link that was pruned from a chain: verification begins after it.
CREATE TABLE audit_checkpoints (
    chain INTEGER PRIMARY KEY,
    link  INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    at    INTEGER NOT NULL  -- when it was pruned
);


-- Promotion

-- The one row is the database that `duetime promote` copies this one to. While the row exists, no node starts here.
CREATE TABLE promotion (
    id       TEXT PRIMARY KEY,  -- the target has the same id
    target   TEXT NOT NULL,     -- host and database, without the password
    began_at INTEGER NOT NULL,
    ended_at INTEGER            -- NULL: the copy may be incomplete
) WITHOUT ROWID;
