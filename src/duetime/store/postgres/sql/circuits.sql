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
RETURNING id, tenant, url, failures, opened_at, next_probe_at, probe, xmax = 0 AS is_new;

-- name: lock_circuit
SELECT id, tenant, url, failures, opened_at, next_probe_at, probe FROM circuits
WHERE id = :circuit::bigint AND failures > 0 FOR UPDATE;

-- name: set_circuits
-- Of what is locked.
UPDATE circuits AS c
SET failures = p.failures, opened_at = p.opened_at, next_probe_at = p.next_probe_at, probe = p.probe,
    touched_at = :now::bigint, changed_in = pg_current_xact_id()
FROM unnest(:circuits::bigint[], :failures::integer[], :opened_ats::bigint[], :next_probe_ats::bigint[], :probes::text[])
    AS p (id, failures, opened_at, next_probe_at, probe)
WHERE c.id = p.id;

-- name: close_circuits
-- Of what is locked. They stay without failures, so that those who know them learn of it.
UPDATE circuits
SET failures = 0, opened_at = NULL, next_probe_at = NULL, probe = NULL, touched_at = :now::bigint,
    changed_in = pg_current_xact_id()
WHERE id = ANY (:circuits::bigint[]);

-- name: count_circuits
-- Of each of these tenants, up to a bound.
SELECT t.tenant, (SELECT count(*) FROM (SELECT 1 FROM circuits AS c WHERE c.tenant = t.tenant LIMIT :most::bigint) AS n)
FROM unnest(:tenants::text[]) AS t (tenant);

-- name: forget_circuits
-- So many of a tenant's: the closed ones first, of these what was touched longest ago. What others hold is left to them.
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE tenant = :tenant::text
    ORDER BY opened_at IS NULL DESC, touched_at, id DESC LIMIT :limit::bigint FOR UPDATE SKIP LOCKED)
RETURNING id;
