-- Targets that have failed since they last succeeded; see domain/breaker.py.
CREATE TABLE circuits (
    id            INTEGER PRIMARY KEY,   -- of the tenant and the URL
    tenant        TEXT NOT NULL,
    url           TEXT NOT NULL,         -- without its query
    failures      INTEGER NOT NULL,      -- executions in a row that failed for good
    opened_at     INTEGER,
    next_probe_at INTEGER,
    probe         TEXT,                  -- the execution that tries it
    touched_at    INTEGER NOT NULL
);
CREATE INDEX circuits_of ON circuits (tenant);
