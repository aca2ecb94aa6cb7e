-- API keys, signing keys and subscriptions.

-- name: remove_ended_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys WHERE tenant = :tenant AND (revoked_at IS NOT NULL OR expires_at <= :now)
    ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET :kept);

-- name: get_revoked
SELECT revoked_at FROM api_keys WHERE id = :id AND tenant = :tenant;

-- name: touch_keys
UPDATE api_keys SET last_used_at = :now WHERE id IN (SELECT value FROM json_each(:ids));
