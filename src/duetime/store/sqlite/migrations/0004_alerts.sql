-- Alerts; see domain/alerts.py

-- A row is an alert rule of a tenant. Defaults that no rule replaces have no row.
CREATE TABLE alert_rules (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    rule       TEXT NOT NULL,  -- JSON
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- A row is an alert: an open one, or one of the latest that are over.
CREATE TABLE alerts (
    id      TEXT PRIMARY KEY,
    tenant  TEXT NOT NULL,
    rule    TEXT NOT NULL,     -- its name
    is_open INTEGER NOT NULL,  -- 1: it is not over, or that it is over is still to be told; else 0
    at      INTEGER NOT NULL,  -- when it resolved, or its first bad reading
    alert   TEXT NOT NULL      -- JSON
) WITHOUT ROWID;
CREATE INDEX alerts_open ON alerts (tenant, id) WHERE is_open = 1;
CREATE INDEX alerts_over ON alerts (tenant, at, id) WHERE is_open = 0;

-- A row is a silence: for its time, no notice is sent of alerts that it covers.
CREATE TABLE silences (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    rule       TEXT NOT NULL,  -- empty: any
    subject    TEXT NOT NULL,  -- empty: any
    begins_at  INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    reason     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX silences_of ON silences (tenant, ends_at);

-- The one row is the owner of the alerts. Its epoch grows with each owner, so that an earlier owner writes nothing.
CREATE TABLE alert_owner (
    epoch INTEGER NOT NULL,
    node  INTEGER NOT NULL
);
INSERT INTO alert_owner (epoch, node) VALUES (0, 0);
