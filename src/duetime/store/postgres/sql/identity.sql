-- Limits, room, API keys and the audit.

-- name: lock_room
SELECT pg_advisory_xact_lock(hashtextextended('duetime room', 0));

-- name: get_loads
SELECT tenant, coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0)::bigint,
       coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)::bigint
FROM counters WHERE tenant = ANY (:tenants::text[]) AND name IN ('jobs', 'bytes') AND day = 0 GROUP BY tenant;

-- name: lock_limits
SELECT l.tenant, l.user_id, l.name, l.full_at
FROM unnest(:tenants::text[], :user_ids::text[], :names::text[]) AS p (tenant, user_id, name)
JOIN limits AS l ON l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
ORDER BY l.tenant, l.user_id, l.name FOR NO KEY UPDATE OF l;

-- name: add_limits
INSERT INTO limits (tenant, user_id, name, full_at)
SELECT *, 0 FROM unnest(:tenants::text[], :user_ids::text[], :names::text[]) AS p (tenant, user_id, name) ORDER BY 1, 2, 3
ON CONFLICT DO NOTHING;

-- name: add_key
INSERT INTO api_keys (id, tenant, user_id, name, role, tier, scopes, secret_hash, created_at, created_by, expires_at)
VALUES (:id::text, :tenant::text, :user_id::text, :name::text, :role::text, :tier::text, :scopes::text,
        :secret_hash::text, :now::bigint, :created_by::text, :expires_at::bigint);

-- name: lock_registered
-- Of these tenants nobody else registers anything until the commit: two at once would both count before either adds.
SELECT count(pg_advisory_xact_lock(number)) FROM (
    SELECT DISTINCT hashtextextended('registered by ' || tenant, 0) AS number FROM unnest(:tenants::text[]) AS t (tenant)
    ORDER BY 1) AS locks;

-- name: count_keys
-- Those that are neither revoked nor expired, whose they are, and whether this user is one of them.
SELECT count(*), count(DISTINCT user_id), coalesce(bool_or(user_id = :user_id::text), false) FROM api_keys
WHERE tenant = :tenant::text AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint);

-- name: remove_ended_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys WHERE tenant = :tenant::text AND (revoked_at IS NOT NULL OR expires_at <= :now::bigint)
    ORDER BY created_at DESC, id DESC OFFSET :kept::bigint);

-- name: get_signing_state
SELECT tenant, version, previous_until, rotated_at, rotated_by FROM signing_keys WHERE tenant = :tenant::text;

-- name: put_signing_state
INSERT INTO signing_keys (tenant, version, previous_until, rotated_at, rotated_by)
VALUES (:tenant::text, :version::bigint, :previous_until::bigint, :rotated_at::bigint, :rotated_by::text)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, previous_until = excluded.previous_until,
    rotated_at = excluded.rotated_at, rotated_by = excluded.rotated_by;

-- name: lock_key
SELECT revoked_at FROM api_keys WHERE id = :id::text AND tenant = :tenant::text FOR NO KEY UPDATE;

-- name: revoke_key
UPDATE api_keys SET revoked_at = :now::bigint WHERE id = :id::text;

-- name: touch_keys
UPDATE api_keys SET last_used_at = :now::bigint WHERE id IN (
    SELECT id FROM api_keys WHERE id = ANY (:ids::text[]) ORDER BY id FOR NO KEY UPDATE);

-- name: end_batch_of_people
-- As end_batch, with what people's commands leave: limits that were taken from (`taken` is domain.limits.take, for all who
-- have enough; where it answers fewer, the batch is done again with the limits locked), and the audit's page. A page's
-- link is made here, of the last one of this writer's chain: whoever shares the chain waits at its head.
WITH counted AS (
    INSERT INTO counters AS c (tenant, name, day, slot, value)
    SELECT p.tenant, p.name, p.day, :slot::smallint, p.value
    FROM unnest(:tenants::text[], :names::text[], :days::integer[], :deltas::bigint[]) AS p (tenant, name, day, value)
    ORDER BY p.tenant, p.name, p.day
    ON CONFLICT (tenant, name, day, slot) DO UPDATE SET value = c.value + excluded.value
),
limited AS (
    UPDATE limits AS l SET full_at = p.full_at
    FROM unnest(:limit_tenants::text[], :limit_users::text[], :limit_names::text[], :full_ats::bigint[])
        AS p (tenant, user_id, name, full_at)
    WHERE l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
),
wanted AS (
    SELECT l.*, p.now, p.count * p.emission AS cost, p.bucket
    FROM unnest(:take_tenants::text[], :take_users::text[], :take_names::text[], :take_nows::bigint[],
                :take_counts::bigint[], :emissions::bigint[], :buckets::bigint[])
        AS p (tenant, user_id, name, now, count, emission, bucket)
    JOIN limits AS l ON l.tenant = p.tenant AND l.user_id = p.user_id AND l.name = p.name
    ORDER BY l.tenant, l.user_id, l.name FOR NO KEY UPDATE OF l
),
taken AS (
    UPDATE limits AS l SET full_at = greatest(w.full_at, w.now) + w.cost
    FROM wanted AS w
    WHERE l.tenant = w.tenant AND l.user_id = w.user_id AND l.name = w.name
      AND greatest(w.full_at, w.now) + w.cost - w.now <= w.bucket
    RETURNING 1
),
head AS (
    INSERT INTO audit_heads AS h (chain, link, hash)
    SELECT :slot::smallint, 1, sha256(:first::bytea || :digest::bytea) WHERE :digest::bytea IS NOT NULL
    ON CONFLICT (chain) DO UPDATE SET link = h.link + 1, hash = sha256(h.hash || :digest::bytea)
    RETURNING link, hash
),
linked AS (
    INSERT INTO audit_links (chain, link, hash) SELECT :slot::smallint, link, hash FROM head
),
noted AS (
    INSERT INTO audit (chain, link, position, tenant, resource, entry)
    SELECT :slot::smallint, h.link, p.position, p.tenant, p.resource, p.entry
    FROM head AS h CROSS JOIN unnest(:entry_tenants::text[], :resources::text[], :entries::text[])
        WITH ORDINALITY AS p (tenant, resource, entry, position)
    ORDER BY p.position
)
INSERT INTO commits AS c (writer, batch) VALUES (:writer::uuid, :batch::bigint)
ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, at = now()
RETURNING (SELECT count(*) FROM taken),
          (SELECT coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0)::bigint FROM counters WHERE tenant = '' AND day = 0),
          (SELECT coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)::bigint FROM counters WHERE tenant = '' AND day = 0);

-- name: lock_audit_link
SELECT encode(hash, 'hex') FROM audit_links WHERE chain = :chain::smallint AND link = :link::bigint FOR UPDATE;

-- name: get_audit_checkpoint
SELECT link FROM audit_checkpoints WHERE chain = :chain::smallint;

-- name: prune_audit
WITH linked AS (
    DELETE FROM audit_links WHERE chain = :chain::smallint AND link <= :link::bigint
),
kept AS (
    INSERT INTO audit_checkpoints (chain, link, hash, at)
    VALUES (:chain::smallint, :link::bigint, decode(:hash::text, 'hex'), :now::bigint)
    ON CONFLICT (chain) DO UPDATE SET link = excluded.link, hash = excluded.hash, at = excluded.at
)
DELETE FROM audit WHERE chain = :chain::smallint AND link <= :link::bigint;

-- name: count_connections
SELECT count(*), coalesce(bool_or(name = :name::text), false) FROM connections WHERE tenant = :tenant::text;

-- name: put_connection
INSERT INTO connections (tenant, name, url, shown, created_at, created_by)
VALUES (:tenant::text, :name::text, :url::text, :shown::text, :now::bigint, :created_by::text)
ON CONFLICT (tenant, name) DO UPDATE SET url = excluded.url, shown = excluded.shown, created_at = excluded.created_at,
                                         created_by = excluded.created_by;

-- name: remove_connection
DELETE FROM connections WHERE tenant = :tenant::text AND name = :name::text RETURNING shown;

-- name: reencrypt_connection
UPDATE connections SET url = :new::text WHERE tenant = :tenant::text AND name = :name::text AND url = :old::text
RETURNING name;

-- name: count_subscriptions
SELECT count(*) FROM subscriptions WHERE tenant = :tenant::text;

-- name: add_subscription
INSERT INTO subscriptions (id, tenant, url, events, created_at, created_by)
VALUES (:id::uuid, :tenant::text, :url::text, :events::text, :now::bigint, :created_by::text);

-- name: remove_subscription
DELETE FROM subscriptions WHERE id = :id::uuid AND tenant = :tenant::text RETURNING url;
