CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    tier         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    secret_hash  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;
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
CREATE TABLE audit (
    number   INTEGER PRIMARY KEY,
    tenant   TEXT NOT NULL,
    resource TEXT NOT NULL,
    entry    TEXT NOT NULL
);
CREATE TABLE audit_checkpoints (
    chain INTEGER PRIMARY KEY,
    link  INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    at    INTEGER NOT NULL
);
CREATE TABLE audit_links (
    link INTEGER PRIMARY KEY,
    hash BLOB NOT NULL
);
CREATE TABLE chains (
    job     BLOB NOT NULL,
    tenant  TEXT NOT NULL,
    key     TEXT NOT NULL,
    ends    TEXT NOT NULL,
    is_done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE circuit_changes (last INTEGER NOT NULL);
CREATE TABLE circuits (
    id            INTEGER PRIMARY KEY,
    tenant        TEXT NOT NULL,
    url           TEXT NOT NULL,
    failures      INTEGER NOT NULL,
    opened_at     INTEGER,
    next_probe_at INTEGER,
    probe         TEXT,
    touched_at    INTEGER NOT NULL,
    changed       INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE connections (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    shown      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE counters (
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE executions (
    id               BLOB PRIMARY KEY,
    job              BLOB NOT NULL,
    tenant           TEXT NOT NULL,
    scheduled_at     INTEGER NOT NULL,
    extra            INTEGER NOT NULL,
    trigger          TEXT NOT NULL,
    state            TEXT NOT NULL,
    reason           TEXT,
    priority         INTEGER NOT NULL,
    endpoint         INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    held             INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL,
    token            INTEGER NOT NULL,
    node             INTEGER,
    started_at       INTEGER,
    ended_at         INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    dead             INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE idempotency_keys (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    response    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
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
    size         INTEGER NOT NULL DEFAULT 0,
    spec         TEXT NOT NULL
);
CREATE TABLE limits (
    tenant  TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name    TEXT NOT NULL,
    full_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, name)
) WITHOUT ROWID;
CREATE TABLE nodes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER
);
CREATE TABLE progress (
    execution BLOB PRIMARY KEY,
    value     TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE promotion (
    id       TEXT PRIMARY KEY,
    target   TEXT NOT NULL,
    began_at INTEGER NOT NULL,
    ended_at INTEGER
) WITHOUT ROWID;
CREATE TABLE shard_epochs (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    node  INTEGER NOT NULL
);
CREATE TABLE signing_keys (
    tenant         TEXT PRIMARY KEY,
    version        INTEGER NOT NULL,
    previous_until INTEGER NOT NULL,
    rotated_at     INTEGER NOT NULL,
    rotated_by     TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE skips (
    job        BLOB NOT NULL,
    tenant     TEXT NOT NULL,
    first_at   INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    count      INTEGER,
    reason     TEXT NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (job, first_at)
) WITHOUT ROWID;
CREATE TABLE subscriptions (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    url        TEXT NOT NULL,
    events     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE timers (
    job         BLOB PRIMARY KEY,
    tenant      TEXT NOT NULL,
    shard       INTEGER NOT NULL,
    status      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    recurs      INTEGER NOT NULL,
    due_at      INTEGER,
    resume_at   INTEGER,
    fired       INTEGER NOT NULL DEFAULT 0,
    runs        INTEGER NOT NULL DEFAULT 0,
    successes   INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    busy_ms     INTEGER NOT NULL DEFAULT 0,
    last_run_at INTEGER,
    last_state  TEXT
) WITHOUT ROWID;
CREATE TABLE workers (
    node       INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    functions  TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    beats      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX api_keys_of ON api_keys (tenant, created_at, id);
CREATE INDEX api_keys_over ON api_keys (coalesce(min(revoked_at, expires_at), revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
CREATE INDEX audit_resource ON audit (tenant, resource, number);
CREATE INDEX chains_awaited ON chains (tenant, key);
CREATE INDEX circuits_changed ON circuits (changed);
CREATE INDEX circuits_latest ON circuits ((opened_at IS NULL), touched_at DESC, id) WHERE failures > 0;
CREATE INDEX circuits_of ON circuits (tenant, (opened_at IS NULL), touched_at DESC, id);
CREATE INDEX circuits_touched ON circuits (touched_at);
CREATE INDEX executions_dead ON executions (tenant, id) WHERE dead = 1;
CREATE INDEX executions_held ON executions (job, scheduled_at, extra) WHERE held = 1;
CREATE UNIQUE INDEX executions_instant ON executions (job, scheduled_at, extra);
CREATE INDEX executions_of_worker ON executions (node) WHERE state = 'RUNNING' AND endpoint < 0;
CREATE INDEX executions_open ON executions (job, state) WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING');
CREATE INDEX executions_tenant ON executions (tenant, id) WHERE tenant <> 'default';
CREATE INDEX executions_waiting ON executions (tenant, priority DESC, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
CREATE INDEX executions_waiting_at ON executions (tenant, priority DESC, endpoint, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0;
CREATE INDEX executions_waiting_due ON executions (due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
CREATE INDEX executions_waiting_of ON executions (tenant, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (tenant, name, id);
CREATE INDEX jobs_owner ON jobs (tenant, owner, id) WHERE owner <> 'local';
CREATE INDEX jobs_tenant ON jobs (tenant, id) WHERE tenant <> 'default';
CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX signing_keys_rotated ON signing_keys (rotated_at);
CREATE INDEX skips_age ON skips (until_at);
CREATE INDEX timers_due ON timers (due_at, tenant) WHERE due_at IS NOT NULL;
PRAGMA user_version = 1;
