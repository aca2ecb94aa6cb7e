-- Circuits of the breaker. domain/breaker.py has the rules.

-- name: list_ended
-- Returns the positions of the ends that were stored as the ends of their executions.
SELECT p.place
FROM unnest(:ids::uuid[], :ats::bigint[], :attempts::integer[], :tokens::integer[], :states::text[])
    WITH ORDINALITY AS p (id, at, attempt, token, state, place)
JOIN executions AS e ON e.scheduled_at = p.at AND e.id = p.id
WHERE e.state = p.state AND e.attempt = p.attempt AND e.token = p.token;

-- name: lock_circuits
-- Returns the circuits, creates missing ones, and locks all until the commit; in one order, so that there are no
-- deadlocks.
INSERT INTO circuits AS c (id, tenant, url, failures, touched_at)
SELECT p.*, 0, :now::bigint
FROM unnest(:circuits::bigint[], :tenants::text[], :urls::text[]) AS p (id, tenant, url)
ORDER BY p.id
ON CONFLICT (id) DO UPDATE SET touched_at = excluded.touched_at
RETURNING id, tenant, url, failures, opened_at, next_probe_at, probe, xmax = 0 AS is_new;

-- name: lock_circuit
SELECT id, tenant, url, failures, opened_at, next_probe_at, probe FROM circuits
WHERE id = :circuit::bigint AND failures > 0 FOR UPDATE;

-- name: set_circuits
-- The circuits are locked.
UPDATE circuits AS c
SET failures = p.failures, opened_at = p.opened_at, next_probe_at = p.next_probe_at, probe = p.probe,
    touched_at = :now::bigint, changed_in = pg_current_xact_id()
FROM unnest(:circuits::bigint[], :failures::integer[], :opened_ats::bigint[], :next_probe_ats::bigint[], :probes::text[])
    AS p (id, failures, opened_at, next_probe_at, probe)
WHERE c.id = p.id;

-- name: close_circuits
-- The circuits are locked. The rows stay, without failures, so that nodes that have read them read that they are closed.
UPDATE circuits
SET failures = 0, opened_at = NULL, next_probe_at = NULL, probe = NULL, touched_at = :now::bigint,
    changed_in = pg_current_xact_id()
WHERE id = ANY (:circuits::bigint[]);

-- name: count_circuits
-- Counts the circuits of each of these tenants, up to :most.
SELECT t.tenant, (SELECT count(*) FROM (SELECT 1 FROM circuits AS c WHERE c.tenant = t.tenant LIMIT :most::bigint) AS n)
FROM unnest(:tenants::text[]) AS t (tenant);

-- name: forget_circuits
-- Deletes :limit circuits of a tenant: closed ones first, and of these the longest unused. Skips locked rows.
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE tenant = :tenant::text
    ORDER BY opened_at IS NULL DESC, touched_at, id DESC LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)
RETURNING id;
