-- Commands of housekeeping. They remove rows by age (prune), of a tenant (trim), or that no index finds by age (sweep).

-- name: list_prunable
-- Differs from the PostgreSQL version in that all history is one table, removed row by row; PostgreSQL drops the
-- partition of a whole day.
SELECT '[' || group_concat('"' || uuid_text(id) || '"') || ']' FROM (
    SELECT id FROM executions
    WHERE id < unhex(:before, '-') AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING')
    ORDER BY id LIMIT :limit);

-- name: count_states
SELECT tenant, state, count(*)
FROM json_each(:ids) AS i CROSS JOIN executions AS e ON e.id = unhex(i.value, '-')
GROUP BY 1, 2;

-- name: remove_attempts
DELETE FROM attempts WHERE execution IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: remove_progress
DELETE FROM progress WHERE execution IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: remove_executions
DELETE FROM executions WHERE id IN (SELECT unhex(value, '-') FROM json_each(:ids));

-- name: prune_skips
DELETE FROM skips WHERE (job, first_at) IN (SELECT job, first_at FROM skips WHERE until_at < :before LIMIT :limit);

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys
WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys WHERE created_at < :before LIMIT :limit);

-- name: prune_circuits
DELETE FROM circuits WHERE id IN (
    SELECT id FROM circuits WHERE touched_at < :before ORDER BY touched_at LIMIT :limit);

-- name: prune_nodes
DELETE FROM nodes WHERE id IN (
    SELECT id FROM nodes INDEXED BY nodes_ended WHERE ended_at < :before ORDER BY ended_at LIMIT :limit);

-- name: prune_api_keys
DELETE FROM api_keys WHERE id IN (
    SELECT id FROM api_keys INDEXED BY api_keys_over
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND coalesce(min(revoked_at, expires_at), revoked_at, expires_at) < :before
    LIMIT :limit);

-- name: list_to_trim
SELECT uuid_text(id), state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') AND dead = 0 FROM executions
WHERE tenant = :tenant AND tenant <> 'default' AND id > unhex(:after, '-') ORDER BY id LIMIT :look;

-- name: list_to_trim_of_default
-- (The index by tenant does not contain this tenant, which is often the only one: then the primary key has the order.)
SELECT uuid_text(id), tenant = 'default' AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') AND dead = 0 FROM executions
WHERE id > unhex(:after, '-') ORDER BY id LIMIT :look;

-- name: list_dead_to_trim
SELECT uuid_text(id) FROM executions INDEXED BY executions_dead
WHERE tenant = :tenant AND dead = 1 AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING') ORDER BY id LIMIT :number;

-- name: list_swept_page
-- Differs from the PostgreSQL version in that page, candidates and removal are statements of their own; PostgreSQL
-- locks what it will remove.
SELECT uuid_text(last), number FROM (
    SELECT max(id) AS last, count(*) AS number
    FROM (SELECT id FROM jobs WHERE id > unhex(:after, '-') ORDER BY id LIMIT :limit));

-- name: list_to_sweep
SELECT uuid_text(j.id), j.tenant, j.size, json_type(j.spec, '$.tags."' || :tag || '"') IS NOT NULL, t.status
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id > unhex(:after, '-') AND j.id <= unhex(:last, '-')
  AND j.key IS NULL AND (t.status = 'CANCELLED' OR t.status = 'COMPLETED' AND t.recurs = 0)
  AND j.updated_at < :before AND coalesce(t.last_run_at, 0) < :before
  AND NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.job = j.id)
  AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = j.id);

-- name: list_delivered
-- Returns notifications that their only run has delivered: they are removed with their history.
SELECT uuid_text(j.id), j.tenant, j.size, 1, t.status
FROM jobs AS j CROSS JOIN timers AS t ON t.job = j.id
WHERE j.id > unhex(:after, '-') AND j.id <= unhex(:last, '-')
  AND j.key IS NULL AND t.status = 'COMPLETED' AND t.recurs = 0 AND t.last_state = 'COMPLETED' AND t.runs = 1
  AND j.updated_at < :before AND t.last_run_at < :before
  AND json_type(j.spec, '$.tags."' || :tag || '"') IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM executions AS o WHERE o.job = j.id AND o.state IN ('QUEUED', 'RUNNING', 'RETRYING'))
  AND (SELECT count(*) FROM (SELECT 1 FROM executions AS e WHERE e.job = j.id LIMIT 11)) <= 10
  AND NOT EXISTS (SELECT 1 FROM skips AS s WHERE s.job = j.id);

-- name: list_history
SELECT '[' || group_concat('"' || uuid_text(e.id) || '"') || ']'
FROM json_each(:jobs) AS j CROSS JOIN executions AS e ON e.job = unhex(j.value, '-');

-- name: sweep_links
DELETE FROM chains WHERE job IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: sweep_timers
DELETE FROM timers WHERE job IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: sweep_jobs
DELETE FROM jobs WHERE id IN (SELECT unhex(value, '-') FROM json_each(:jobs));

-- name: get_last_limit
-- Differs from the PostgreSQL version in that the page is found first, and then swept; PostgreSQL does both in one
-- statement.
SELECT tenant, user_id, name, number FROM (
    SELECT tenant, user_id, name, count(*) OVER () AS number FROM (
        SELECT tenant, user_id, name FROM limits WHERE (tenant, user_id, name) > (:tenant, :user_id, :name)
        ORDER BY tenant, user_id, name LIMIT :limit))
ORDER BY tenant DESC, user_id DESC, name DESC LIMIT 1;

-- name: sweep_limits
DELETE FROM limits
WHERE (tenant, user_id, name) > (:tenant, :user_id, :name) AND (tenant, user_id, name) <= (:last_tenant, :last_user, :last_name)
  AND full_at < :before;

-- name: get_last_counter
SELECT tenant, name, number FROM (
    SELECT tenant, name, count(*) OVER () AS number FROM (
        SELECT tenant, name FROM counters WHERE (tenant, name) > (:tenant, :name) ORDER BY tenant, name LIMIT :limit))
ORDER BY tenant DESC, name DESC LIMIT 1;

-- name: sweep_counters
-- Differs from the PostgreSQL version in that there is one total a name; PostgreSQL has one for each name, day and
-- writer.
DELETE FROM counters
WHERE (tenant, name) > (:tenant, :name) AND (tenant, name) <= (:last_tenant, :last_name) AND value = 0 AND tenant <> '';

-- name: prune_job_totals
DELETE FROM job_totals WHERE (tenant, status) IN (
    SELECT tenant, status FROM job_totals WHERE tenant <> '' AND value = 0 LIMIT :limit);

-- name: get_audit_link
SELECT lower(hex(hash)) FROM audit_links WHERE link = :link;

-- name: get_audit_checkpoint
SELECT link FROM audit_checkpoints WHERE chain = :chain;

-- name: set_audit_checkpoint
INSERT INTO audit_checkpoints (chain, link, hash, at) VALUES (:chain, :link, unhex(:hash), :now)
ON CONFLICT DO UPDATE SET link = excluded.link, hash = excluded.hash, at = excluded.at;

-- name: prune_audit_links
DELETE FROM audit_links WHERE link <= :link;

-- name: prune_audit
-- Differs from the PostgreSQL version in that the checkpoint and the links are written by statements of their own.
DELETE FROM audit WHERE number < (:link + 1) << 20;
