-- Where this database has gone, or is going (`duetime promote`). While the row is there, no node starts on it.
CREATE TABLE promotion (
    id       TEXT PRIMARY KEY,     -- the target has it too
    target   TEXT NOT NULL,        -- host and database, no password
    began_at INTEGER NOT NULL,
    ended_at INTEGER               -- NULL: not known to be complete
) WITHOUT ROWID;
