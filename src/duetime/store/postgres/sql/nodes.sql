-- Commands of nodes and workers.

-- name: get_node
-- A shared lock until the commit: a transaction that ends this node waits.
SELECT ended_at IS NULL FROM nodes WHERE id = :node::integer FOR SHARE;

-- name: start_node
WITH fenced AS (UPDATE nodes SET ended_at = :now::bigint WHERE name = :name::text AND ended_at IS NULL)
INSERT INTO nodes (name, started_at) VALUES (:name::text, :now::bigint) RETURNING id;

-- name: fence_nodes
-- A running fire or claim of such a node has locked its row: this waits for it, and the next fire or claim is refused.
WITH locked AS MATERIALIZED (
    SELECT id FROM nodes WHERE id = ANY (:nodes::integer[]) AND ended_at IS NULL ORDER BY id FOR NO KEY UPDATE
),
workers AS (DELETE FROM workers AS w USING locked AS l WHERE w.node = l.id)
UPDATE nodes AS n SET ended_at = :now::bigint FROM locked AS l WHERE n.id = l.id AND n.ended_at IS NULL
RETURNING n.id;

-- name: fence_workers
-- A running heartbeat has locked the worker's row: this waits for it, and then the number of beats differs.
WITH locked AS MATERIALIZED (
    SELECT id FROM nodes WHERE id = ANY (:workers::integer[]) AND ended_at IS NULL ORDER BY id FOR NO KEY UPDATE
),
silent AS (
    DELETE FROM workers AS w
    USING locked AS l, unnest(:workers::integer[], :beats::bigint[]) AS p (node, beats)
    WHERE w.node = l.id AND p.node = l.id AND w.beats = p.beats
    RETURNING w.node
)
UPDATE nodes AS n SET ended_at = :now::bigint FROM silent AS s WHERE n.id = s.node AND n.ended_at IS NULL
RETURNING n.id;

-- name: count_workers
SELECT count(*), coalesce(sum(octet_length(functions)), 0) FROM workers WHERE tenant = :tenant::text;

-- name: join_worker
WITH joined AS (INSERT INTO nodes (name, started_at) VALUES (:name::text, :now::bigint) RETURNING id)
INSERT INTO workers (node, tenant, user_id, name, functions, slots, started_at, seen_at)
SELECT id, :tenant::text, :user_id::text, :name::text, :functions::text, :slots::integer, :now::bigint, :now::bigint
FROM joined RETURNING node;

-- name: beat_workers
UPDATE workers SET seen_at = :now::bigint, beats = beats + 1 WHERE node = ANY (:workers::integer[]) RETURNING node;

-- name: fence_shards
INSERT INTO shard_epochs AS s (shard, epoch, node)
SELECT p.shard, p.epoch, :node::integer FROM unnest(:shards::integer[], :epochs::bigint[]) AS p (shard, epoch)
ORDER BY p.shard
ON CONFLICT (shard) DO UPDATE SET epoch = excluded.epoch, node = excluded.node
    WHERE s.epoch < excluded.epoch OR s.epoch = excluded.epoch AND s.node = excluded.node
RETURNING s.shard;

-- name: get_epoch
SELECT epoch FROM shard_epochs WHERE shard = :shard::integer;
