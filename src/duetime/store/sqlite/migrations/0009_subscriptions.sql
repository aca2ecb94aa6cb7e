-- Who is told of what happens in a tenant.
CREATE TABLE subscriptions (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    url        TEXT NOT NULL,
    events     TEXT NOT NULL,   -- JSON
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
) WITHOUT ROWID;
