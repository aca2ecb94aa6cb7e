-- Queries of `duetime promote` on the source. The target's promotion.sql has the same facts, by the same names.

-- name: count_rows
SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM timers) + (SELECT count(*) FROM executions)
     + (SELECT count(*) FROM attempts) + (SELECT count(*) FROM progress) + (SELECT count(*) FROM skips) + (SELECT count(*) FROM chains) + (SELECT count(*) FROM watched_jobs) + (SELECT count(*) FROM idempotency_keys)
     + (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM connections) + (SELECT count(*) FROM alert_channels) + (SELECT count(*) FROM subscriptions) + (SELECT count(*) FROM signing_keys) + (SELECT count(*) FROM limits) + (SELECT count(*) FROM audit)
     + (SELECT count(*) FROM statistics) + (SELECT count(*) FROM alert_rules) + (SELECT count(*) FROM alerts) + (SELECT count(*) FROM silences)
     + (SELECT count(*) FROM audit_links) + (SELECT count(*) FROM audit_checkpoints);

-- name: get_event_head
SELECT number FROM event_head;

-- name: get_first_from
-- Ids begin with their instant: the days of history are found without reading all of it.
SELECT min(id) FROM executions WHERE id >= :id;

-- name: list_facts
SELECT 'jobs', count(*) FROM jobs
UNION ALL SELECT 'timers', count(*) FROM timers
UNION ALL SELECT 'executions', count(*) FROM executions
UNION ALL SELECT 'attempts', count(*) FROM attempts
UNION ALL SELECT 'progress', count(*) FROM progress
UNION ALL SELECT 'skips', count(*) FROM skips
UNION ALL SELECT 'chains', count(*) FROM chains
UNION ALL SELECT 'chains done', count(*) FROM chains WHERE is_done = 1
UNION ALL SELECT 'watched jobs', count(*) FROM watched_jobs
UNION ALL SELECT 'idempotency keys', count(*) FROM idempotency_keys
UNION ALL SELECT 'nodes', count(*) FROM nodes
UNION ALL SELECT 'jobs with tags', count(*) FROM jobs WHERE json_extract(spec, '$.tags') <> '{}'
UNION ALL SELECT 'jobs ' || status, count(*) FROM timers GROUP BY status
UNION ALL SELECT 'executions ' || state, count(*) FROM executions GROUP BY state
UNION ALL SELECT 'executions held', count(*) FROM executions WHERE held = 1
UNION ALL SELECT 'executions dead', count(*) FROM executions WHERE dead = 1
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
UNION ALL SELECT 'job total ' || status, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY status
UNION ALL SELECT 'jobs in all ' || status, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY status
UNION ALL SELECT 'audit entries', count(*) FROM audit
UNION ALL SELECT 'audit links', count(*) FROM audit_links
UNION ALL SELECT 'audit checkpoints', count(*) FROM audit_checkpoints
UNION ALL SELECT 'total of jobs', count(*) FROM jobs HAVING count(*) > 0
UNION ALL SELECT 'total of bytes', sum(size) FROM jobs HAVING count(*) > 0
UNION ALL SELECT 'counter jobs', count(*) FROM jobs HAVING count(*) > 0
UNION ALL SELECT 'counter bytes', sum(size) FROM jobs HAVING count(*) > 0
UNION ALL SELECT 'counter ' || state, count(*) FROM executions GROUP BY state;

-- name: list_soonest
SELECT due_at, lower(hex(job)) FROM timers WHERE due_at IS NOT NULL ORDER BY due_at, job LIMIT 5;

-- name: sum_jobs
SELECT lower(hex(id)) || '|' || tenant || '|' || coalesce(key, '') || '|' || updated_at || '|' || spec FROM jobs;

-- name: sum_timers
SELECT lower(hex(job)) || '|' || coalesce(due_at, '') || '|' || version || '|' || status || '|' || coalesce(resume_at, '')
       || '|' || fired || '|' || runs || '|' || coalesce(last_run_at, '')
FROM timers;

-- name: sum_executions
SELECT lower(hex(id)) || '|' || lower(hex(job)) || '|' || scheduled_at || '|' || extra || '|' || state || '|' || attempt
       || '|' || token || '|' || due_at || '|' || coalesce(ended_at, '')
FROM executions;

-- name: sum_attempts
SELECT lower(hex(execution)) || '|' || attempt || '|' || coalesce(started_at, '') || '|' || ended_at || '|'
       || coalesce(http_status, '')
FROM attempts;

-- name: sum_audit
SELECT (number >> 20) || '|' || ((number & 1048575) + 1) || '|' || tenant || '|' || resource || '|' || entry FROM audit
UNION ALL SELECT link || '|' || lower(hex(hash)) FROM audit_links
UNION ALL SELECT link || '|' || lower(hex(hash)) || '|' || at FROM audit_checkpoints;

-- name: sum_keys
SELECT id || '|' || tenant || '|' || user_id || '|' || role || '|' || tier || '|' || scopes || '|' || secret_hash || '|'
       || coalesce(expires_at, '') || '|' || coalesce(revoked_at, '')
FROM api_keys;
