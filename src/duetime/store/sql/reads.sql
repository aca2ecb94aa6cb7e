-- Reads. Each block selects one column, `row`; see reads.sql of each store.

-- name: get_worker
SELECT json_build_array(node, tenant, user_id, name, functions::json, slots, started_at, seen_at, beats)::text AS row
FROM workers WHERE node = :worker::integer;

-- name: list_history
SELECT json_build_array(tenant, sum(value)::bigint,
           coalesce(sum(value) FILTER (WHERE name NOT IN ('QUEUED', 'RUNNING', 'RETRYING')), 0)::bigint)::text AS row
FROM counters WHERE tenant <> '' AND name NOT IN ('jobs', 'bytes') GROUP BY tenant HAVING sum(value) > 0;

-- name: count_history
SELECT coalesce(sum(value), 0)::text AS row FROM counters WHERE tenant <> '' AND name NOT IN ('jobs', 'bytes');

-- name: list_state_totals
SELECT json_build_array(name, sum(value)::bigint)::text AS row
FROM counters WHERE tenant <> '' AND name NOT IN ('jobs', 'bytes') GROUP BY name HAVING sum(value) > 0;

-- name: list_waiting_totals
SELECT json_build_array(tenant, name, sum(value)::bigint)::text AS row
FROM counters WHERE tenant <> '' AND name IN ('QUEUED', 'RETRYING')
GROUP BY tenant, name HAVING sum(value) > 0 ORDER BY sum(value) DESC, tenant LIMIT :limit::bigint;

-- name: list_skipped
SELECT json_build_array(first_at, until_at, count, reason, decided_at)::text AS row
FROM skips WHERE job = :job::uuid ORDER BY first_at DESC LIMIT :limit::bigint;

-- name: get_response
SELECT json_build_array(fingerprint, response)::text AS row FROM idempotency_keys
WHERE tenant = :tenant::text AND key = :key::text;

-- name: check
SELECT count(*)::text AS row FROM nodes WHERE ended_at IS NULL;

-- name: get_key
SELECT json_build_array(id, tenant, user_id, name, role, tier, scopes::json, secret_hash, created_at, created_by,
                        expires_at, last_used_at, revoked_at)::text AS row
FROM api_keys WHERE id = :id::text;

-- name: list_keys
SELECT json_build_array(id, tenant, user_id, name, role, tier, scopes::json, secret_hash, created_at, created_by,
                        expires_at, last_used_at, revoked_at)::text AS row
FROM api_keys WHERE tenant = :tenant::text ORDER BY created_at DESC, id DESC LIMIT :limit::bigint;

-- name: list_signing_states
SELECT json_build_array(tenant, version, previous_until, rotated_at, rotated_by)::text AS row FROM signing_keys
WHERE (:tenant::text IS NULL OR tenant = :tenant::text) AND rotated_at >= :since::bigint AND tenant > :after::text
ORDER BY tenant LIMIT :limit::bigint;

-- name: list_subscriptions
SELECT json_build_array(id, tenant, url, events::json, created_at, created_by)::text AS row
FROM (SELECT * FROM subscriptions WHERE :tenant::text IS NULL OR tenant = :tenant::text ORDER BY id
      LIMIT :limit::bigint) AS s;

-- name: get_connection
SELECT json_build_array(tenant, name, url, shown, created_at, created_by)::text AS row
FROM connections WHERE tenant = :tenant::text AND name = :name::text;

-- name: list_connections
SELECT json_build_array(tenant, name, url, shown, created_at, created_by)::text AS row
FROM (SELECT * FROM connections WHERE :tenant::text IS NULL OR tenant = :tenant::text ORDER BY tenant, name
      LIMIT :limit::bigint) AS c;

-- name: get_channel
SELECT json_build_array(tenant, name, kind, url, shown, created_at, created_by)::text AS row
FROM alert_channels WHERE tenant = :tenant::text AND name = :name::text;

-- name: list_channels
SELECT json_build_array(tenant, name, kind, url, shown, created_at, created_by)::text AS row
FROM (SELECT * FROM alert_channels
      WHERE (:tenant::text IS NULL OR tenant = :tenant::text) AND tenant > :after::text ORDER BY tenant, name
      LIMIT :limit::bigint) AS c;

-- name: get_circuit
SELECT json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)::text AS row FROM circuits
WHERE id = :circuit::bigint AND failures > 0;

-- name: list_circuits
SELECT json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)::text AS row FROM circuits
WHERE failures > 0
ORDER BY opened_at IS NULL, touched_at DESC, id LIMIT :limit::bigint;

-- name: list_open_circuits
-- Of each tenant the :most that changed last; and of all tenants first the first, then the second.
SELECT json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)::text AS row
FROM (SELECT c.*, row_number() OVER (PARTITION BY tenant ORDER BY touched_at DESC, id) AS place
      FROM circuits AS c WHERE failures > 0 AND opened_at IS NOT NULL) AS o
WHERE place <= :most::bigint ORDER BY place, tenant LIMIT :limit::bigint;

-- name: list_circuits_of
SELECT json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)::text AS row FROM circuits
WHERE tenant = :tenant::text AND failures > 0
ORDER BY opened_at IS NULL, touched_at DESC, id LIMIT :limit::bigint;

-- name: list_alert_rules
SELECT json_build_array(tenant, rule::json, changed_at, changed_by)::text AS row
FROM (SELECT * FROM alert_rules
      WHERE (:tenant::text IS NULL OR tenant = :tenant::text)
        AND (tenant > :after_tenant::text OR tenant = :after_tenant::text AND name > :after_name::text)
      ORDER BY tenant, name LIMIT :limit::bigint) AS r;

-- name: list_open_alerts
SELECT alert AS row FROM alerts
WHERE is_open = 1 AND (tenant > :after_tenant::text OR tenant = :after_tenant::text AND id > :after_id::text)
ORDER BY tenant, id LIMIT :limit::bigint;

-- name: list_alerts_of
-- Those that are open, oldest first.
SELECT alert AS row FROM alerts WHERE tenant = :tenant::text AND is_open = 1 ORDER BY id LIMIT :limit::bigint;

-- name: list_alert_history
SELECT alert AS row FROM alerts
WHERE tenant = :tenant::text AND is_open = 0 AND (:rule::text IS NULL OR rule = :rule::text)
  AND (at < :before_at::bigint OR at = :before_at::bigint AND id < :before_id::text)
ORDER BY at DESC, id DESC LIMIT :limit::bigint;

-- name: list_silences
SELECT json_build_array(id, tenant, rule, subject, begins_at, ends_at, reason, created_at, created_by)::text AS row
FROM (SELECT * FROM silences
      WHERE (:tenant::text IS NULL OR tenant = :tenant::text) AND tenant > :after::text AND ends_at > :now::bigint
      ORDER BY tenant, ends_at, id LIMIT :limit::bigint) AS s;

-- name: get_totals
-- One snapshot: the jobs that are PENDING are those that have no other status.
SELECT json_build_array(status, sum(value)::bigint)::text AS row
FROM job_totals WHERE tenant = :tenant::text GROUP BY status
UNION ALL
SELECT json_build_array(CASE WHEN name IN ('jobs', 'bytes') THEN name ELSE 'executions ' || name END,
                        sum(value)::bigint)::text
FROM counters WHERE tenant = :tenant::text GROUP BY name;

-- name: count_due_timers_of
-- Of one tenant: [those that are due, how many of its jobs were looked at].
SELECT json_build_array(count(t.job) FILTER (WHERE t.due_at >= :since::bigint AND t.due_at < :until::bigint),
                        count(*))::text AS row
FROM (SELECT id FROM jobs WHERE tenant = :tenant::text LIMIT :limit::bigint) AS j JOIN timers AS t ON t.job = j.id;

-- name: list_statistics
-- A row of a longer span counts if its bucket overlaps the time that is asked for.
SELECT json_build_array(span, bucket_at, tenant, type, subject, node, tally::json)::text AS row FROM (
    SELECT * FROM statistics
    WHERE (:span::integer IS NULL OR span = :span::integer)
      AND (span = 10000 AND bucket_at > :since::bigint - 10000 AND bucket_at < :until::bigint
           OR span = 60000 AND bucket_at > :since::bigint - 60000 AND bucket_at < :until::bigint
           OR span = 3600000 AND bucket_at > :since::bigint - 3600000 AND bucket_at < :until::bigint)
      AND (:type::text IS NULL OR type = :type::text) AND (:subject::text IS NULL OR subject = :subject::text)
    ORDER BY bucket_at DESC, tenant, type LIMIT :limit::bigint) AS s;

-- name: list_statistics_of
-- The same of one tenant.
SELECT json_build_array(span, bucket_at, tenant, type, subject, node, tally::json)::text AS row FROM (
    SELECT * FROM statistics
    WHERE tenant = :tenant::text AND (:span::integer IS NULL OR span = :span::integer)
      AND (span = 10000 AND bucket_at > :since::bigint - 10000 AND bucket_at < :until::bigint
           OR span = 60000 AND bucket_at > :since::bigint - 60000 AND bucket_at < :until::bigint
           OR span = 3600000 AND bucket_at > :since::bigint - 3600000 AND bucket_at < :until::bigint)
      AND (:type::text IS NULL OR type = :type::text) AND (:subject::text IS NULL OR subject = :subject::text)
    ORDER BY bucket_at DESC, type LIMIT :limit::bigint) AS s;

-- name: list_node_reports
SELECT json_build_array(node, at, facts::json)::text AS row FROM (
    SELECT * FROM node_reports ORDER BY at DESC LIMIT :limit::bigint) AS r;
