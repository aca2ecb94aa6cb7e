-- Who may do what, how much of it, and who did.

-- What a user has taken of a limit: the instant (µs) at which the bucket is full again. See domain/limits.py.
CREATE TABLE limits (
    tenant  TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name    TEXT NOT NULL,
    full_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, name)
) WITHOUT ROWID;

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

-- Append-only. `entry` is what is hashed; tenant and resource are copies out of it, to look up by.
CREATE TABLE audit (
    number   INTEGER PRIMARY KEY,  -- its link * 2^20 + its place in the page
    tenant   TEXT NOT NULL,
    resource TEXT NOT NULL,
    entry    TEXT NOT NULL
);
CREATE INDEX audit_resource ON audit (tenant, resource, number);
-- One a commit: the hash of the link before it and of its entries. See domain/audit.py.
CREATE TABLE audit_links (
    link INTEGER PRIMARY KEY,
    hash BLOB NOT NULL
);

-- What a job counts for; the totals of all tenants are the counters of the tenant ''.
ALTER TABLE jobs ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET size = octet_length(spec) + 512;
INSERT INTO counters (tenant, name, value)
SELECT '', 'jobs', count(*) FROM jobs UNION ALL SELECT '', 'bytes', coalesce(sum(size), 0) FROM jobs;

-- The local admin's tenant is the whole file, and he is its one owner: his jobs need no index to be found by.
CREATE INDEX jobs_tenant ON jobs (tenant, id) WHERE tenant <> 'default';
CREATE INDEX jobs_owner ON jobs (tenant, owner, id) WHERE owner <> 'local';
CREATE INDEX executions_tenant ON executions (tenant, id) WHERE tenant <> 'default';
