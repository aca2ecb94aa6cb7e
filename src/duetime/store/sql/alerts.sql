-- Alerts, their rules and silences.

-- name: count_alert_rules
SELECT count(*), count(*) FILTER (WHERE name = :name::text) FROM alert_rules WHERE tenant = :tenant::text;

-- name: put_alert_rule
INSERT INTO alert_rules (tenant, name, rule, changed_at, changed_by)
VALUES (:tenant::text, :name::text, :rule::text, :now::bigint, :changed_by::text)
ON CONFLICT (tenant, name) DO UPDATE SET rule = excluded.rule, changed_at = excluded.changed_at,
                                         changed_by = excluded.changed_by;

-- name: get_alert_rule
SELECT rule FROM alert_rules WHERE tenant = :tenant::text AND name = :name::text;

-- name: remove_alert_rule
DELETE FROM alert_rules WHERE tenant = :tenant::text AND name = :name::text RETURNING rule;

-- name: remove_ended_silences
DELETE FROM silences WHERE tenant = :tenant::text AND ends_at <= :now::bigint;

-- name: count_silences
SELECT count(*) FROM silences WHERE tenant = :tenant::text;

-- name: add_silence
INSERT INTO silences (id, tenant, rule, subject, begins_at, ends_at, reason, created_at, created_by)
VALUES (:silence_id::text, :tenant::text, :rule::text, :subject::text, :begins_at::bigint, :ends_at::bigint,
        :reason::text, :created_at::bigint, :created_by::text);

-- name: remove_silence
DELETE FROM silences WHERE tenant = :tenant::text AND id = :silence_id::text RETURNING reason;

-- name: take_alerts
UPDATE alert_owner SET epoch = epoch + 1, node = :node::integer RETURNING epoch;

-- name: put_alert
INSERT INTO alerts (id, tenant, rule, is_open, at, alert)
VALUES (:id::text, :tenant::text, :rule::text, :is_open::smallint, :at::bigint, :alert::text)
ON CONFLICT (id) DO UPDATE SET is_open = excluded.is_open, at = excluded.at, alert = excluded.alert;

-- name: drop_alert
DELETE FROM alerts WHERE tenant = :tenant::text AND id = :id::text;

-- name: trim_alerts
-- Keeps the latest :kept alerts of a tenant that are over.
DELETE FROM alerts WHERE id IN (
    SELECT id FROM alerts WHERE tenant = :tenant::text AND is_open = 0
    ORDER BY at DESC, id DESC LIMIT 10000 OFFSET :kept::bigint);
