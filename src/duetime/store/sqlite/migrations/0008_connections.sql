-- Databases that SQL jobs may use, by the names that people give them.
CREATE TABLE connections (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,   -- sealed: it holds a password
    shown      TEXT NOT NULL,   -- the same without it
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
