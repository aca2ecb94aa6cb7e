-- Queries of `duetime promote` on the target. The source's export.sql has the same facts, by the same names.

-- name: create_promotions
-- Not a migration: only the target of a promotion needs this table.
CREATE TABLE IF NOT EXISTS promotions (
    id          uuid PRIMARY KEY,      -- as in the source's own mark
    source      text NOT NULL,
    promoted_at bigint NOT NULL,
    nodes       integer[] NOT NULL,    -- the source's nodes, by their ids here
    facts       text NOT NULL          -- JSON: what was verified
);

-- name: has_promotions
SELECT to_regclass('promotions') IS NOT NULL;

-- name: get_promotion
SELECT promoted_at, nodes, facts FROM promotions WHERE id = :id::uuid;

-- name: add_promotion
INSERT INTO promotions (id, source, promoted_at, nodes, facts)
VALUES (:id::uuid, :source::text, :now::bigint, :nodes::integer[], :facts::text);

-- name: remove_promotion
DELETE FROM promotions WHERE id = :id::uuid;

-- name: get_own_rows
-- Returns whether the database has rows already, of a node that ran here or of another promotion.
SELECT (SELECT count(*) FROM jobs) AS jobs,
       EXISTS (SELECT 1 FROM timers) OR EXISTS (SELECT 1 FROM executions) OR EXISTS (SELECT 1 FROM open_runs)
       OR EXISTS (SELECT 1 FROM attempts) OR EXISTS (SELECT 1 FROM skips) OR EXISTS (SELECT 1 FROM idempotency_keys)
       OR EXISTS (SELECT 1 FROM api_keys) OR EXISTS (SELECT 1 FROM subscriptions) OR EXISTS (SELECT 1 FROM connections)
       OR EXISTS (SELECT 1 FROM alert_channels)
       OR EXISTS (SELECT 1 FROM signing_keys) OR EXISTS (SELECT 1 FROM limits)
       OR EXISTS (SELECT 1 FROM alert_rules) OR EXISTS (SELECT 1 FROM alerts) OR EXISTS (SELECT 1 FROM silences)
       OR EXISTS (SELECT 1 FROM audit_links WHERE chain = -1)
       OR EXISTS (SELECT 1 FROM audit_checkpoints WHERE chain = -1) AS has_history;

-- name: list_new_node_ids
SELECT nextval(pg_get_serial_sequence('nodes', 'id'))::integer FROM generate_series(1, :count::integer);

-- name: get_later_node
-- Returns a node that has started here since: it may have run promoted jobs. Its row may have been pruned, but then the
-- promoted nodes were pruned too, because they ended earlier; and only a node prunes.
(SELECT name FROM nodes
 WHERE id <> ALL (:nodes::integer[])
   AND (ended_at IS NULL OR ended_at >= :at::bigint
        OR id > (SELECT coalesce(max(promoted), 0) FROM unnest(:nodes::integer[]) AS n (promoted)))
 ORDER BY id DESC LIMIT 1)
UNION ALL
SELECT 'whose name is no longer kept'
WHERE (SELECT count(*) FROM nodes WHERE id = ANY (:nodes::integer[])) < cardinality(:nodes::integer[])
LIMIT 1;

-- name: empty
TRUNCATE jobs, timers, executions, open_runs, attempts, progress, chains, watched_jobs, skips, counters, idempotency_keys, api_keys, subscriptions, signing_keys, connections, alert_channels, alert_rules, alerts, silences, limits,
         statistics, node_reports, job_totals;

-- name: empty_audit
-- Only the promoted entries: entries of changes that were made here stay.
WITH linked AS (DELETE FROM audit_links WHERE chain = -1),
     kept AS (DELETE FROM audit_checkpoints WHERE chain = -1)
DELETE FROM audit WHERE chain = -1;

-- name: list_facts
SELECT 'jobs', count(*) FROM jobs
UNION ALL SELECT 'timers', count(*) FROM timers
UNION ALL SELECT 'executions', count(*) FROM executions
UNION ALL SELECT 'attempts', count(*) FROM attempts
UNION ALL SELECT 'progress', count(*) FROM progress
UNION ALL SELECT 'skips', count(*) FROM skips
UNION ALL SELECT 'chains', count(*) FROM chains
UNION ALL SELECT 'chains done', count(*) FROM chains WHERE is_done
UNION ALL SELECT 'watched jobs', count(*) FROM watched_jobs
UNION ALL SELECT 'idempotency keys', count(*) FROM idempotency_keys
UNION ALL SELECT 'nodes', count(*) FROM nodes WHERE id = ANY (:nodes::integer[])
UNION ALL SELECT 'jobs with tags', count(*) FROM jobs WHERE tags IS NOT NULL
UNION ALL SELECT 'jobs ' || status, count(*) FROM timers GROUP BY status
UNION ALL SELECT 'executions ' || state, count(*) FROM (
    SELECT state FROM executions WHERE state IS NOT NULL UNION ALL SELECT state FROM open_runs) AS all_of_them GROUP BY state
UNION ALL SELECT 'executions held', count(*) FROM open_runs WHERE held
UNION ALL SELECT 'executions dead', count(*) FROM executions WHERE dead
UNION ALL SELECT 'API keys', count(*) FROM api_keys
UNION ALL SELECT 'subscriptions', count(*) FROM subscriptions
UNION ALL SELECT 'signing keys', count(*) FROM signing_keys
UNION ALL SELECT 'connections', count(*) FROM connections
UNION ALL SELECT 'alert channels', count(*) FROM alert_channels
UNION ALL SELECT 'alert rules', count(*) FROM alert_rules
UNION ALL SELECT 'alerts', count(*) FROM alerts
UNION ALL SELECT 'silences', count(*) FROM silences
UNION ALL SELECT 'limits', count(*) FROM limits
UNION ALL SELECT 'statistics', count(*) FROM statistics
UNION ALL SELECT CASE WHEN tenant = '' THEN 'jobs in all ' ELSE 'job total ' END || status, sum(value)::bigint
FROM job_totals GROUP BY 1 HAVING sum(value) <> 0
UNION ALL SELECT 'audit entries', count(*) FROM audit WHERE chain = -1
UNION ALL SELECT 'audit links', count(*) FROM audit_links WHERE chain = -1
UNION ALL SELECT 'audit checkpoints', count(*) FROM audit_checkpoints WHERE chain = -1
UNION ALL SELECT CASE WHEN tenant = '' THEN 'total of ' ELSE 'counter ' END || name, sum(value)::bigint
FROM counters GROUP BY 1 HAVING sum(value) <> 0;

-- name: begin_events
-- Events are not copied: whoever resumes from one of the source is told that events may be missing.
WITH head AS (UPDATE event_head SET number = greatest(number, :number::bigint))
UPDATE event_prune SET number = greatest(number, :number::bigint);

-- name: list_soonest
SELECT due_at, encode(uuid_send(job), 'hex') FROM timers WHERE due_at IS NOT NULL ORDER BY due_at, job LIMIT 5;

-- The checksums add one number for each row, so that they need no order and no memory.

-- name: sum_jobs
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT encode(uuid_send(id), 'hex') || '|' || tenant || '|' || coalesce(key, '') || '|' || updated_at || '|' || spec AS line
    FROM jobs) AS lines;

-- name: sum_timers
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT concat(encode(uuid_send(job), 'hex'), '|', due_at, '|', version, '|', status, '|', resume_at, '|', fired, '|',
                  runs, '|', last_run_at) AS line
    FROM timers) AS lines;

-- name: sum_executions
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT concat(encode(uuid_send(id), 'hex'), '|', encode(uuid_send(job), 'hex'), '|', scheduled_at, '|', extra, '|',
                  state, '|', attempt, '|', token, '|', due_at, '|', ended_at) AS line
    FROM executions WHERE state IS NOT NULL
    UNION ALL
    SELECT concat(encode(uuid_send(o.execution), 'hex'), '|', encode(uuid_send(o.job), 'hex'), '|', o.scheduled_at, '|',
                  o.extra, '|', o.state, '|', o.attempt, '|', o.token, '|', o.due_at, '|') AS line
    FROM open_runs AS o JOIN executions AS e ON e.scheduled_at = o.scheduled_at AND e.id = o.execution
    WHERE e.state IS NULL) AS lines;

-- name: sum_attempts
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT concat(encode(uuid_send(execution), 'hex'), '|', attempt, '|', started_at, '|', ended_at, '|', http_status)
           AS line
    FROM attempts) AS lines;

-- name: sum_audit
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT concat(link, '|', position, '|', tenant, '|', resource, '|', entry) AS line FROM audit WHERE chain = -1
    UNION ALL
    SELECT concat(link, '|', encode(hash, 'hex')) FROM audit_links WHERE chain = -1
    UNION ALL
    SELECT concat(link, '|', encode(hash, 'hex'), '|', at) FROM audit_checkpoints WHERE chain = -1) AS lines;

-- name: sum_keys
SELECT sum(('x' || encode(substr(sha256(convert_to(line, 'UTF8')), 1, 7), 'hex'))::bit(56)::bigint) FROM (
    SELECT concat(id, '|', tenant, '|', user_id, '|', role, '|', tier, '|', scopes, '|', secret_hash, '|', expires_at, '|',
                  revoked_at) AS line
    FROM api_keys) AS lines;
