-- What housekeeping needs to bound the tables that nothing was ever removed from.

CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;

-- By when a key stopped being taken: revoked or expired, whichever came first. (Of two instants, min() is NULL if one is.)
CREATE INDEX api_keys_over ON api_keys (coalesce(min(revoked_at, expires_at), revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- Up to which link a chain of the audit was pruned: what is left is verified from here on.
CREATE TABLE audit_checkpoints (
    chain INTEGER PRIMARY KEY,
    link  INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    at    INTEGER NOT NULL   -- when it was pruned
);
