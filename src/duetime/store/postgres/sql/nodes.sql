-- Commands of nodes, housekeeping, and the end of every transaction.

-- name: start_node
WITH void AS (UPDATE nodes SET ended_at = :now::bigint WHERE name = :name::text AND ended_at IS NULL)
INSERT INTO nodes (name, started_at) VALUES (:name::text, :now::bigint) RETURNING id;

-- name: end_nodes
-- A fire or claim of theirs that is under way holds the row: it is waited for, and the next one is refused.
WITH locked AS MATERIALIZED (
    SELECT id FROM nodes WHERE id = ANY (:nodes::integer[]) AND ended_at IS NULL ORDER BY id FOR NO KEY UPDATE
),
workers AS (DELETE FROM workers AS w USING locked AS l WHERE w.node = l.id)
UPDATE nodes AS n SET ended_at = :now::bigint FROM locked AS l WHERE n.id = l.id AND n.ended_at IS NULL;

-- name: end_workers
-- A beat that is under way holds the worker's row: it is waited for, and then the number of beats is another one.
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

-- name: prune_executions
-- By the partition key, oldest first; what is open has no state here and stays.
WITH page AS MATERIALIZED (
    SELECT e.scheduled_at, e.id FROM executions AS e
    WHERE e.scheduled_at < :before::bigint AND e.state IS NOT NULL
    ORDER BY e.scheduled_at, e.id LIMIT :limit::bigint
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.scheduled_at = p.scheduled_at AND a.execution = p.id
),
said AS (
    DELETE FROM progress AS s USING page AS p WHERE s.scheduled_at = p.scheduled_at AND s.execution = p.id
),
gone AS (
    DELETE FROM executions AS e USING page AS p WHERE e.scheduled_at = p.scheduled_at AND e.id = p.id AND e.state IS NOT NULL
    RETURNING e.tenant, e.state, e.scheduled_at
)
SELECT tenant, state, (scheduled_at / 86400000)::integer AS day, count(*) FROM gone GROUP BY 1, 2, 3;

-- name: list_to_trim
SELECT id, state IS NOT NULL AND NOT dead FROM executions
WHERE tenant = :tenant::text AND tenant <> 'default' AND scheduled_at >= :at::bigint
  AND (scheduled_at, id) > (:at::bigint, :after::uuid)
ORDER BY scheduled_at, id LIMIT :look::bigint;

-- name: list_to_trim_of_default
-- (The index by tenant leaves this tenant out: mostly there is no other, and the ids alone are the order.)
SELECT id, tenant = :tenant::text AND state IS NOT NULL AND NOT dead FROM executions
WHERE scheduled_at >= :at::bigint AND (scheduled_at, id) > (:at::bigint, :after::uuid)
ORDER BY scheduled_at, id LIMIT :look::bigint;

-- name: list_dead_to_trim
SELECT id FROM executions WHERE tenant = :tenant::text AND dead AND state IS NOT NULL
ORDER BY scheduled_at, id LIMIT :number::bigint;

-- name: trim_executions
-- As prune_executions, of those that are named.
WITH page AS MATERIALIZED (
    SELECT * FROM unnest(:ats::bigint[], :ids::uuid[]) AS p (scheduled_at, id)
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.scheduled_at = p.scheduled_at AND a.execution = p.id
),
said AS (
    DELETE FROM progress AS s USING page AS p WHERE s.scheduled_at = p.scheduled_at AND s.execution = p.id
),
gone AS (
    DELETE FROM executions AS e USING page AS p WHERE e.scheduled_at = p.scheduled_at AND e.id = p.id AND e.state IS NOT NULL
    RETURNING e.tenant, e.state, e.scheduled_at
)
SELECT tenant, state, (scheduled_at / 86400000)::integer AS day, count(*) FROM gone GROUP BY 1, 2, 3;

-- name: prune_skips
DELETE FROM skips WHERE (job, first_at) IN (
    SELECT job, first_at FROM skips WHERE until_at < :before::bigint ORDER BY until_at LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED);

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys WHERE (tenant, key) IN (
    SELECT tenant, key FROM idempotency_keys WHERE created_at < :before::bigint ORDER BY created_at LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED);

-- name: prune_nodes
DELETE FROM nodes WHERE id IN (
    SELECT id FROM nodes WHERE ended_at < :before::bigint ORDER BY ended_at LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: prune_api_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL) AND least(revoked_at, expires_at) < :before::bigint
    ORDER BY least(revoked_at, expires_at) LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: prune_commits
-- A writer that has been gone for a day is in doubt about nothing.
DELETE FROM commits WHERE writer IN (
    SELECT writer FROM commits WHERE at < now() - interval '1 day' LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);

-- name: drop_progress_of_day
DELETE FROM progress WHERE scheduled_at >= :since::bigint AND scheduled_at < :before::bigint;

-- name: drop_counters_of_day
DELETE FROM counters WHERE day = :day::integer AND tenant <> '' AND name NOT IN ('jobs', 'bytes') RETURNING value;

-- name: is_open_between
SELECT EXISTS (SELECT 1 FROM open_runs WHERE scheduled_at >= :since::bigint AND scheduled_at < :before::bigint);

-- name: end_batch
-- The last statement before COMMIT: totals, and the sign by which a writer in doubt knows that it was committed.
-- The totals' rows in one order, and each writer's its own: none waits long for another, and none for each other.
WITH counted AS (
    INSERT INTO counters AS c (tenant, name, day, slot, value)
    SELECT p.tenant, p.name, p.day, :slot::smallint, p.value
    FROM unnest(:tenants::text[], :names::text[], :days::integer[], :deltas::bigint[]) AS p (tenant, name, day, value)
    ORDER BY p.tenant, p.name, p.day
    ON CONFLICT (tenant, name, day, slot) DO UPDATE SET value = c.value + excluded.value
)
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, :batch::bigint)
ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = now();

-- name: get_last_batch
-- Waits for whatever this writer has still under way, and then says what of it holds.
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, -1)
ON CONFLICT (writer) DO UPDATE SET at = now()
RETURNING batch;
