-- The signing key of each tenant that has rotated it: which version signs, and until when the one before does, too.
CREATE TABLE signing_keys (
    tenant         text COLLATE "C" PRIMARY KEY,
    version        bigint NOT NULL,
    previous_until bigint NOT NULL,
    rotated_at     bigint NOT NULL,
    rotated_by     text NOT NULL
);
CREATE INDEX signing_keys_rotated ON signing_keys (rotated_at);
