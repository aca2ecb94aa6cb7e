-- A row is a place that notices of alerts of a tenant are sent to, by its name.
CREATE TABLE alert_channels (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,  -- webhook or apprise
    url        TEXT NOT NULL,  -- encrypted: it has tokens
    shown      TEXT NOT NULL,  -- the URL without them
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
