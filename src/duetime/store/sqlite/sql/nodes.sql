-- Commands of nodes and workers.

-- name: get_node
SELECT ended_at IS NULL FROM nodes WHERE id = :node;

-- name: fence_namesakes
-- Differs from the PostgreSQL version in that it is a statement of its own; in PostgreSQL it is a part of `start_node`.
UPDATE nodes SET ended_at = :now WHERE name = :name AND ended_at IS NULL;

-- name: start_node
INSERT INTO nodes (name, started_at) VALUES (:name, :now) RETURNING id;

-- name: stop_node
UPDATE nodes SET ended_at = :now WHERE id = :node;

-- name: fence_nodes
UPDATE nodes SET ended_at = :now WHERE id IN (SELECT value FROM json_each(:nodes)) AND ended_at IS NULL
RETURNING id;

-- name: fence_workers
DELETE FROM workers WHERE node IN (SELECT value FROM json_each(:nodes));

-- name: fence_silent_workers
-- Differs from the PostgreSQL version in that the node is ended by `fence_nodes` after it; in PostgreSQL all is one
-- statement.
DELETE FROM workers WHERE (node, beats) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:workers)) RETURNING node;

-- name: count_workers
SELECT count(*), coalesce(sum(octet_length(functions)), 0) FROM workers WHERE tenant = :tenant;

-- name: add_worker
-- Differs from the PostgreSQL version in that the node is started before it; PostgreSQL does both in `join_worker`.
INSERT INTO workers (node, tenant, user_id, name, functions, slots, started_at, seen_at)
VALUES (:node, :tenant, :user_id, :name, :functions, :slots, :now, :now);

-- name: beat_workers
UPDATE workers SET seen_at = :now, beats = beats + 1 WHERE node IN (SELECT value FROM json_each(:workers))
RETURNING node;

-- name: get_later_epoch
-- Differs from the PostgreSQL version in that the check comes before the write; PostgreSQL writes only rows that pass
-- it, and counts them.
SELECT w.value ->> 0, w.value ->> 1, s.epoch
FROM json_each(:shards) AS w JOIN shard_epochs AS s ON s.shard = w.value ->> 0
WHERE s.epoch > w.value ->> 1 OR s.epoch = w.value ->> 1 AND s.node <> :node
LIMIT 1;

-- name: fence_shards
INSERT INTO shard_epochs (shard, epoch, node)
SELECT value ->> 0, value ->> 1, :node FROM json_each(:shards) WHERE true
ON CONFLICT DO UPDATE SET epoch = excluded.epoch, node = excluded.node;
