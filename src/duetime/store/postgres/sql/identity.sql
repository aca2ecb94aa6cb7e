-- API keys, signing keys and subscriptions.

-- name: lock_registered
-- Until the commit no other transaction registers anything of these tenants: two could both count before either adds.
SELECT count(pg_advisory_xact_lock(number)) FROM (
    SELECT DISTINCT hashtextextended('registered by ' || tenant, 0) AS number FROM unnest(:tenants::text[]) AS t (tenant)
    ORDER BY 1) AS locks;

-- name: remove_ended_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys WHERE tenant = :tenant::text AND (revoked_at IS NOT NULL OR expires_at <= :now::bigint)
    ORDER BY created_at DESC, id DESC OFFSET :kept::bigint);

-- name: lock_key
SELECT revoked_at FROM api_keys WHERE id = :id::text AND tenant = :tenant::text FOR NO KEY UPDATE;

-- name: touch_keys
UPDATE api_keys SET last_used_at = :now::bigint WHERE id IN (
    SELECT id FROM api_keys WHERE id = ANY (:ids::text[]) ORDER BY id FOR NO KEY UPDATE);
