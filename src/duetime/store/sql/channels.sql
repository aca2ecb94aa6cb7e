-- Alert channels.

-- name: count_channels
SELECT count(*), count(*) FILTER (WHERE name = :name::text) FROM alert_channels WHERE tenant = :tenant::text;

-- name: put_channel
INSERT INTO alert_channels (tenant, name, kind, url, shown, created_at, created_by)
VALUES (:tenant::text, :name::text, :kind::text, :url::text, :shown::text, :now::bigint, :created_by::text)
ON CONFLICT (tenant, name) DO UPDATE SET kind = excluded.kind, url = excluded.url, shown = excluded.shown,
                                         created_at = excluded.created_at, created_by = excluded.created_by;

-- name: remove_channel
DELETE FROM alert_channels WHERE tenant = :tenant::text AND name = :name::text RETURNING shown;

-- name: reencrypt_channel
UPDATE alert_channels SET url = :new::text WHERE tenant = :tenant::text AND name = :name::text AND url = :old::text
RETURNING name;
