-- Circuits of the breaker; see domain/breaker.py, which has the rules.

-- name: list_ended
-- Which of these ends are how their executions ended.
SELECT p.place
FROM unnest(:ids::uuid[], :ats::bigint[], :attempts::integer[], :tokens::integer[], :states::text[])
    WITH ORDINALITY AS p (id, at, attempt, token, state, place)
JOIN executions AS e ON e.scheduled_at = p.at AND e.id = p.id
WHERE e.state = p.state AND e.attempt = p.attempt AND e.token = p.token;

-- name: lock_circuits
-- Each as it stands, made if it was not there, and locked until the commit; in one order, so that no two wait for each
-- other.
INSERT INTO circuits AS c (id, tenant, url, failures, touched_at)
SELECT p.*, 0, :now::bigint
FROM unnest(:circuits::bigint[], :tenants::text[], :urls::text[]) AS p (id, tenant, url)
ORDER BY p.id
ON CONFLICT (id) DO UPDATE SET touched_at = excluded.touched_at
RETURNING id, tenant, url, failures, opened_at, next_probe_at, probe;

-- name: lock_circuit
SELECT id, tenant, url, failures, opened_at, next_probe_at, probe FROM circuits
WHERE id = :circuit::bigint FOR UPDATE;

-- name: set_circuits
-- Of what is locked.
UPDATE circuits AS c
SET failures = p.failures, opened_at = p.opened_at, next_probe_at = p.next_probe_at, probe = p.probe,
    touched_at = :now::bigint
FROM unnest(:circuits::bigint[], :failures::integer[], :opened_ats::bigint[], :next_probe_ats::bigint[], :probes::text[])
    AS p (id, failures, opened_at, next_probe_at, probe)
WHERE c.id = p.id;

-- name: remove_circuits
DELETE FROM circuits WHERE id = ANY (:circuits::bigint[]);

-- name: prune_circuits
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE touched_at < :before::bigint ORDER BY id LIMIT :limit::bigint FOR UPDATE SKIP LOCKED);
