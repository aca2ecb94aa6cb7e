-- The signing key of each tenant that has rotated it: which version signs, and until when the one before does, too.
CREATE TABLE signing_keys (
    tenant         TEXT PRIMARY KEY,
    version        INTEGER NOT NULL,
    previous_until INTEGER NOT NULL,
    rotated_at     INTEGER NOT NULL,
    rotated_by     TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX signing_keys_rotated ON signing_keys (rotated_at);
