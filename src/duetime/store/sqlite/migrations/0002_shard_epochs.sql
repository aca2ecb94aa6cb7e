-- Who owns a shard: only its latest owner may fire its timers.
CREATE TABLE shard_epochs (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    node  INTEGER NOT NULL
);
