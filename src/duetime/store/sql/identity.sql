-- API keys, signing keys and subscriptions.

-- name: add_key
INSERT INTO api_keys (id, tenant, user_id, name, role, tier, scopes, secret_hash, created_at, created_by, expires_at)
VALUES (:key_id::text, :tenant::text, :user_id::text, :name::text, :role::text, :tier::text, :scopes::text,
        :secret_hash::text, :now::bigint, :created_by::text, :expires_at::bigint);

-- name: count_keys
-- Returns how many keys are neither revoked nor expired, how many users have them, and how many this user has.
SELECT count(*), count(DISTINCT user_id), count(*) FILTER (WHERE user_id = :user_id::text) FROM api_keys
WHERE tenant = :tenant::text AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint);

-- name: revoke_key
UPDATE api_keys SET revoked_at = :now::bigint WHERE id = :id::text;

-- name: get_signing_state
SELECT tenant, version, previous_until, rotated_at, rotated_by FROM signing_keys WHERE tenant = :tenant::text;

-- name: put_signing_state
INSERT INTO signing_keys (tenant, version, previous_until, rotated_at, rotated_by)
VALUES (:tenant::text, :version::bigint, :previous_until::bigint, :rotated_at::bigint, :rotated_by::text)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, previous_until = excluded.previous_until,
    rotated_at = excluded.rotated_at, rotated_by = excluded.rotated_by;

-- name: count_subscriptions
SELECT count(*) FROM subscriptions WHERE tenant = :tenant::text;

-- name: add_subscription
INSERT INTO subscriptions (id, tenant, url, events, created_at, created_by)
VALUES (:subscription_id::text::uuid, :tenant::text, :url::text, :events::text, :now::bigint, :created_by::text);

-- name: remove_subscription
DELETE FROM subscriptions WHERE id = :subscription_id::text::uuid AND tenant = :tenant::text RETURNING url;
