-- Rows that a commit writes in addition to those of its commands: totals, used limits, and the audit.

-- name: add_to_counter
-- Differs from the PostgreSQL version in that each command writes its totals at once; PostgreSQL writes all with the
-- last statement.
INSERT INTO counters (tenant, name, value) VALUES (:tenant, :name, :delta)
ON CONFLICT DO UPDATE SET value = value + excluded.value;

-- name: add_to_job_total
INSERT INTO job_totals (tenant, status, value) VALUES (:tenant, :status, :delta)
ON CONFLICT DO UPDATE SET value = value + excluded.value;

-- name: add_to_loads
-- Returns the new totals of the tenant and of all tenants: a separate read would cost as much as the write.
INSERT INTO counters (tenant, name, value)
VALUES (:tenant, 'jobs', :jobs), (:tenant, 'bytes', :bytes), ('', 'jobs', :jobs), ('', 'bytes', :bytes)
ON CONFLICT DO UPDATE SET value = value + excluded.value
RETURNING tenant, name, value;

-- name: get_limit
-- Differs from the PostgreSQL version in that a limit is read when it is taken from; PostgreSQL locks all of them
-- first, or checks them last.
SELECT full_at FROM limits WHERE tenant = :tenant AND user_id = :user_id AND name = :name;

-- name: set_limit
INSERT INTO limits (tenant, user_id, name, full_at) VALUES (:tenant, :user_id, :name, :full_at)
ON CONFLICT DO UPDATE SET full_at = excluded.full_at;

-- name: get_last_link
-- (If all links were pruned, it is the checkpoint.)
SELECT link, hash FROM (
    SELECT * FROM (SELECT link, hash FROM audit_links ORDER BY link DESC LIMIT 1)
    UNION ALL SELECT link, hash FROM audit_checkpoints WHERE chain = -1)
ORDER BY link DESC LIMIT 1;

-- name: add_audit_link
-- Differs from the PostgreSQL version in that the caller computes the hash: there is one chain. PostgreSQL computes it,
-- one chain a writer.
INSERT INTO audit_links (link, hash) VALUES (:link, :hash);

-- name: add_audit
INSERT INTO audit (number, tenant, resource, entry)
SELECT (:link << 20) + key, value ->> 0, value ->> 1, value ->> 2 FROM json_each(:entries);
