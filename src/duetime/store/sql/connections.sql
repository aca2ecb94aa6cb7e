-- The databases that SQL jobs use.

-- name: count_connections
SELECT count(*), count(*) FILTER (WHERE name = :name::text) FROM connections WHERE tenant = :tenant::text;

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
