-- Queries of `duetime doctor`. They run in read-only transactions, use the database's clock, and are bounded.

-- name: read_server
SELECT current_setting('server_version_num')::integer AS version_number, current_setting('server_version') AS version,
       pg_is_in_recovery() AS is_standby, current_setting('default_transaction_read_only') = 'on' AS is_read_only,
       current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('autovacuum') = 'on' AS is_vacuumed, current_setting('track_counts') = 'on' AS is_counting;

-- name: read_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8;

-- name: read_connections
-- Returns the nearest of three limits, with the number of connections in use: max_connections without those reserved for
-- superusers, the limit of the database, and that of the role.
SELECT l.room, l.in_use::integer FROM pg_database AS d, pg_roles AS r, LATERAL (VALUES
    (current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - coalesce(nullif(current_setting('reserved_connections', true), '')::integer, 0),
     (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database)),
    (nullif(d.datconnlimit, -1), (SELECT numbackends FROM pg_stat_database WHERE datid = d.oid)),
    (nullif(r.rolconnlimit, -1), (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid))) AS l (room, in_use)
WHERE d.datname = current_database() AND r.rolname = current_user AND l.room IS NOT NULL
ORDER BY l.room - l.in_use LIMIT 1;

-- name: count_due_timers
WITH instant AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
SELECT count(*) AS count, coalesce(max(i.now - t.due_at), 0) AS late
FROM instant AS i CROSS JOIN unnest(:shards::smallint[]) AS s (shard)
CROSS JOIN LATERAL (SELECT v.due_at FROM timers AS v WHERE v.shard = s.shard AND v.due_at IS NOT NULL AND v.due_at <= i.now
                    ORDER BY v.due_at LIMIT :most::bigint) AS t;

-- name: count_waiting_executions
WITH instant AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
SELECT count(*) AS count, coalesce(max(i.now - w.due_at), 0) AS late
FROM instant AS i
CROSS JOIN LATERAL (SELECT o.due_at FROM open_runs AS o
                    WHERE o.state <> 'RUNNING' AND NOT o.held AND o.endpoint >= 0 AND o.attempt >= 0 AND o.due_at <= i.now
                    ORDER BY o.due_at LIMIT :most::bigint) AS w;

-- name: count_lost_executions
-- Counts executions of nodes that have ended in the store, or that are not in :alive, the registry's living nodes (NULL:
-- not known).
WITH instant AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
SELECT count(*) AS count, max(i.now - n.ended_at) AS since
FROM instant AS i CROSS JOIN open_runs AS o LEFT JOIN nodes AS n ON n.id = o.node
WHERE o.state = 'RUNNING' AND o.node IS NOT NULL
  AND (n.id IS NULL OR n.ended_at IS NOT NULL OR o.node <> ALL (:alive::integer[]))
  AND NOT EXISTS (SELECT 1 FROM workers AS w WHERE w.node = o.node);

-- name: list_missing_functions
-- Returns up to :named functions that no worker has, out of :most waiting executions.
WITH instant AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now),
waiting AS MATERIALIZED (
    SELECT DISTINCT ON (w.endpoint) w.endpoint, w.job FROM instant AS i CROSS JOIN LATERAL (
        SELECT o.endpoint, o.job FROM open_runs AS o
        WHERE o.endpoint < 0 AND o.state <> 'RUNNING' AND NOT o.held AND o.due_at <= i.now LIMIT :most::bigint) AS w
),
wanted AS MATERIALIZED (
    SELECT j.tenant, j.spec::json -> 'payload' ->> 'function' AS function FROM waiting AS w JOIN jobs AS j ON j.id = w.job
)
SELECT DISTINCT d.function FROM wanted AS d
WHERE NOT EXISTS (SELECT 1 FROM workers AS k
                  WHERE k.tenant = d.tenant AND d.function IN (SELECT json_array_elements_text(k.functions::json)))
ORDER BY d.function LIMIT :named::bigint;

-- name: count_waiting_functions
-- Counts executions that only a worker can run, up to :most.
WITH instant AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
SELECT count(*) AS count, coalesce(max(i.now - w.due_at), 0) AS late, (SELECT count(*) FROM workers) AS workers
FROM instant AS i CROSS JOIN LATERAL (
    SELECT o.due_at FROM open_runs AS o
    WHERE o.endpoint < 0 AND o.state <> 'RUNNING' AND NOT o.held AND o.due_at <= i.now LIMIT :most::bigint) AS w;

-- name: list_fenced
SELECT shard, epoch, node FROM shard_epochs;

-- name: read_history
SELECT (SELECT coalesce(sum(value), 0)::bigint FROM counters WHERE tenant <> '' AND name NOT IN ('jobs', 'bytes')) AS count,
       (SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)::bigint FROM pg_inherits AS i
        WHERE i.inhparent IN ('executions'::regclass, 'attempts'::regclass)) AS size_bytes,
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now;

-- name: count_strays
SELECT (SELECT count(*) FROM (SELECT 1 FROM executions_rest LIMIT :most::bigint) AS e) AS executions,
       (SELECT count(*) FROM (SELECT 1 FROM attempts_rest LIMIT :most::bigint) AS a) AS attempts;

-- name: list_dead_rows
SELECT relname::text AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname = ANY (:tables::text[]) ORDER BY n_dead_tup DESC;
