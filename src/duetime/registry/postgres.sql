-- Leases and shards on PostgreSQL. All instants are from the database's clock. READ COMMITTED is enough. (At a stricter
-- level a second check fails with an error, and the call is repeated.)
--
-- Why there are no races:
--
-- 1. A shard that is free at an epoch stays free until a take makes the next epoch: a release keeps the epoch, an ended
--    lease never comes back, and only `take` gives a shard an owner. So `take` may decide on its snapshot, however old,
--    and write only where the epoch is unchanged. Of two takers, the second waits for the row, finds the next epoch,
--    and gets nothing.
-- 2. `take` ends an expired lease before it takes its shards, and ends it by *writing* the lease's row. `renew` writes
--    the same row. The second of the two waits, and then checks the new version of the row: after a renewal the lease
--    has not expired, and nothing is taken; after an end the renewal is refused. (A lock on the row instead of a write
--    is not enough: a renewal that checked before it waited would not check again.)
-- 3. So the view of a renewal, from the snapshot before its write, is correct for the node's own shards: if one of them
--    had been taken since, the lease would have ended, and the renewal would return nothing.
-- 4. The taker's own lease is checked with a lock on its row: if another node ends it, `take` waits and then gets
--    nothing. If it expires right after, another node takes the shards at the next epoch, when the taker no longer
--    trusts its lease.
-- 5. All statements but `renew` take turns, by an advisory lock of the transaction (PgBouncer may share connections).
--    The points above do not depend on it. It prevents deadlocks of statements that lock several rows. `renew` locks
--    one row and then waits for nothing.

-- name: schema
SELECT pg_advisory_xact_lock(hashtext('duetime.registry'), hashtext(current_schema()));

-- The latest lease of each name. A row outlives its lease, so that a late join can't undo its end.
CREATE TABLE IF NOT EXISTS leases (
    name      text PRIMARY KEY,
    node      bigint NOT NULL UNIQUE,
    roles     text[] NOT NULL,
    lapses_at timestamptz NOT NULL,
    ended     boolean NOT NULL
) WITH (fillfactor = 50);  -- a renewal stays on its page and touches no index

CREATE TABLE IF NOT EXISTS shards (
    shard integer PRIMARY KEY,
    owner bigint,
    epoch bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO shards (shard, epoch) SELECT number, 0 FROM generate_series(0, 63) AS number ON CONFLICT DO NOTHING;

-- name: join
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('duetime.registry'), hashtext(current_schema()))
), forgotten AS (  -- names that come and go (containers) must not pile up
    DELETE FROM leases AS l USING turn
    WHERE l.lapses_at < clock_timestamp() - interval '1 day' AND l.name <> $2
      AND NOT EXISTS (SELECT FROM shards AS s WHERE s.owner = l.node)
)
INSERT INTO leases AS l (node, name, roles, lapses_at, ended)
SELECT $1::bigint, $2::text, $3::text[], clock_timestamp() + $4::float8 * interval '1 second', false FROM turn
ON CONFLICT (name) DO UPDATE
SET node = excluded.node, roles = excluded.roles, lapses_at = excluded.lapses_at, ended = false
WHERE l.node < excluded.node OR (l.node = excluded.node AND NOT l.ended AND l.lapses_at > clock_timestamp())
RETURNING l.node;

-- name: renew
WITH renewed AS (
    UPDATE leases SET lapses_at = clock_timestamp() + $2::float8 * interval '1 second'
    WHERE node = $1 AND NOT ended AND lapses_at > clock_timestamp()
    RETURNING node, name, roles, lapses_at
), instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), living AS (
    SELECT node, name, roles, lapses_at FROM renewed
    UNION ALL
    SELECT l.node, l.name, l.roles, l.lapses_at FROM leases AS l, instant AS i
    WHERE l.node <> $1 AND NOT l.ended AND l.lapses_at > i.now
)
SELECT json_build_array(
    (SELECT floor(extract(epoch FROM now) * 1000)::bigint FROM instant),
    (SELECT json_agg(json_build_array(node, name, roles, floor(extract(epoch FROM lapses_at) * 1000)::bigint)
                     ORDER BY node) FROM living),
    (SELECT json_agg(json_build_array(owner, epoch) ORDER BY shard) FROM shards),
    (SELECT coalesce(json_agg(l.node ORDER BY l.node), '[]') FROM leases AS l, instant AS i
     WHERE l.node <> $1 AND (l.ended OR l.lapses_at <= i.now))
) FROM renewed;

-- name: view
WITH instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
SELECT json_build_array(
    floor(extract(epoch FROM i.now) * 1000)::bigint,
    (SELECT coalesce(json_agg(json_build_array(l.node, l.name, l.roles,
                                               floor(extract(epoch FROM l.lapses_at) * 1000)::bigint) ORDER BY l.node),
                     '[]') FROM leases AS l WHERE NOT l.ended AND l.lapses_at > i.now),
    (SELECT json_agg(json_build_array(owner, epoch) ORDER BY shard) FROM shards),
    (SELECT coalesce(json_agg(l.node ORDER BY l.node), '[]') FROM leases AS l WHERE l.ended OR l.lapses_at <= i.now)
) FROM instant AS i;

-- name: take
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('duetime.registry'), hashtext(current_schema()))
), taker AS MATERIALIZED (
    SELECT l.node FROM turn, leases AS l
    WHERE l.node = $1 AND NOT l.ended AND l.lapses_at > clock_timestamp()
    FOR SHARE OF l
), over AS (
    UPDATE leases AS l SET ended = true
    FROM taker
    WHERE (l.ended OR l.lapses_at <= clock_timestamp())
      AND l.node IN (SELECT s.owner FROM shards AS s WHERE s.shard = ANY ($2::integer[]))
    RETURNING l.node
), free AS MATERIALIZED (
    SELECT s.shard, s.epoch FROM shards AS s
    WHERE s.shard = ANY ($2::integer[])
      AND (s.owner IS NULL
           OR s.owner IN (SELECT node FROM over)
           -- A newer node of the same name has replaced its row.
           OR NOT EXISTS (SELECT FROM leases AS l WHERE l.node = s.owner))
)
UPDATE shards AS s SET owner = $1, epoch = s.epoch + 1
FROM taker, free
WHERE s.shard = free.shard AND s.epoch = free.epoch
RETURNING s.shard, s.epoch;

-- name: release
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('duetime.registry'), hashtext(current_schema()))
)
UPDATE shards AS s SET owner = NULL
FROM turn, unnest($2::integer[], $3::bigint[]) AS given (shard, epoch)
WHERE s.shard = given.shard AND s.epoch = given.epoch AND s.owner = $1;

-- name: leave
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('duetime.registry'), hashtext(current_schema()))
), left_at AS (
    UPDATE leases AS l SET ended = true, lapses_at = least(l.lapses_at, clock_timestamp()) FROM turn WHERE l.node = $1
)
UPDATE shards AS s SET owner = NULL FROM turn WHERE s.owner = $1;
