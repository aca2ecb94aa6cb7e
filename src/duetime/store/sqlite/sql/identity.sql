-- API keys, signing keys and subscriptions.

-- name: add_key
INSERT INTO api_keys (id, tenant, user_id, name, role, tier, scopes, secret_hash, created_at, created_by, expires_at)
VALUES (:key_id, :tenant, :user_id, :name, :role, :tier, :scopes, :secret_hash, :now, :created_by, :expires_at);

-- name: count_keys
-- Those that are neither revoked nor expired, whose they are, and whether this user is one of them.
SELECT count(*), count(DISTINCT user_id), coalesce(max(user_id = :user_id), 0) FROM api_keys
WHERE tenant = :tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: remove_ended_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys WHERE tenant = :tenant AND (revoked_at IS NOT NULL OR expires_at <= :now)
    ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET :kept);

-- name: get_revoked
SELECT revoked_at FROM api_keys WHERE id = :id AND tenant = :tenant;

-- name: revoke_key
UPDATE api_keys SET revoked_at = :now WHERE id = :id;

-- name: touch_keys
UPDATE api_keys SET last_used_at = :now WHERE id IN (SELECT value FROM json_each(:ids));

-- name: get_signing_state
SELECT tenant, version, previous_until, rotated_at, rotated_by FROM signing_keys WHERE tenant = :tenant;

-- name: put_signing_state
INSERT INTO signing_keys (tenant, version, previous_until, rotated_at, rotated_by)
VALUES (:tenant, :version, :previous_until, :rotated_at, :rotated_by)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, previous_until = excluded.previous_until,
    rotated_at = excluded.rotated_at, rotated_by = excluded.rotated_by;

-- name: count_subscriptions
SELECT count(*) FROM subscriptions WHERE tenant = :tenant;

-- name: add_subscription
INSERT INTO subscriptions (id, tenant, url, events, created_at, created_by)
VALUES (:subscription_id, :tenant, :url, :events, :now, :created_by);

-- name: remove_subscription
DELETE FROM subscriptions WHERE id = :subscription_id AND tenant = :tenant RETURNING url;
