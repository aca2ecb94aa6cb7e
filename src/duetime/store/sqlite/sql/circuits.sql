-- Circuits of the breaker. domain/breaker.py has the rules.

-- name: list_ended
-- Returns the positions of the ends that were stored as the ends of their executions.
SELECT p.key FROM json_each(:ends) AS p CROSS JOIN executions AS e ON e.id = unhex(p.value ->> 3, '-')
WHERE e.attempt = p.value ->> 4 AND e.token = p.value ->> 5 AND e.state = p.value ->> 6;

-- name: get_circuits
SELECT id, tenant, url, failures, opened_at, next_probe_at, probe FROM circuits
WHERE id IN (SELECT value FROM json_each(:circuits));

-- name: count_change_of_circuits
-- Differs from the PostgreSQL version in that changes are numbered by a counter; PostgreSQL uses the id of the
-- transaction.
UPDATE circuit_changes SET last = last + 1;

-- name: set_circuits
-- Differs from the PostgreSQL version in that it adds new circuits; PostgreSQL has added and locked them before
-- (`lock_circuits`).
INSERT INTO circuits (id, tenant, url, failures, opened_at, next_probe_at, probe, touched_at, changed)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, :now,
       (SELECT last FROM circuit_changes)
FROM json_each(:circuits) WHERE true
ON CONFLICT DO UPDATE SET failures = excluded.failures, opened_at = excluded.opened_at,
    next_probe_at = excluded.next_probe_at, probe = excluded.probe, touched_at = excluded.touched_at,
    changed = excluded.changed;

-- name: close_circuits
-- The rows stay, without failures, so that nodes that have read them read that they are closed.
UPDATE circuits
SET failures = 0, opened_at = NULL, next_probe_at = NULL, probe = NULL, touched_at = :now,
    changed = (SELECT last FROM circuit_changes)
WHERE id IN (SELECT value FROM json_each(:circuits));

-- name: count_circuits
-- Counts the circuits of each of these tenants, up to :most.
SELECT t.value, (SELECT count(*) FROM (SELECT 1 FROM circuits AS c WHERE c.tenant = t.value LIMIT :most))
FROM json_each(:tenants) AS t;

-- name: forget_circuits
-- Deletes :limit circuits of a tenant: closed ones first, and of these the longest unused.
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE tenant = :tenant
    ORDER BY opened_at IS NULL DESC, touched_at, id DESC LIMIT :limit)
RETURNING id;
