-- What housekeeping needs to bound the tables that nothing was ever removed from.

CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;

-- By when a key stopped being taken: revoked or expired, whichever came first.
CREATE INDEX api_keys_over ON api_keys (least(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Up to which link a chain of the audit was pruned: what is left is verified from here on.
CREATE TABLE audit_checkpoints (
    chain smallint PRIMARY KEY,
    link  bigint NOT NULL,
    hash  bytea NOT NULL,
    at    bigint NOT NULL   -- when it was pruned
);
