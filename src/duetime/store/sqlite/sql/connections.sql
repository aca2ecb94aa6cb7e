-- The databases that SQL jobs use.

-- name: count_connections
SELECT count(*), coalesce(max(name = :name), 0) FROM connections WHERE tenant = :tenant;

-- name: put_connection
INSERT INTO connections (tenant, name, url, shown, created_at, created_by)
VALUES (:tenant, :name, :url, :shown, :now, :created_by)
ON CONFLICT DO UPDATE SET url = excluded.url, shown = excluded.shown, created_at = excluded.created_at,
                          created_by = excluded.created_by;

-- name: remove_connection
DELETE FROM connections WHERE tenant = :tenant AND name = :name RETURNING shown;

-- name: reencrypt_connection
UPDATE connections SET url = :new WHERE tenant = :tenant AND name = :name AND url = :old RETURNING name;
