-- Each block but those of due timers selects one column, `row`: a JSON array in the order of the struct's fields. The
-- reader wraps a block so that it returns all rows as one text: one value to receive, one decode into typed structs.
-- A job's spec is JSON already and is copied in as it is. A large spec (4,096 bytes, and 512 that are always counted) has
-- another form where the engine holds it: the reader does not decode it (`domain/held_specs.py`).

-- name: list_due_timers
-- Reads a few timers of each shard, in order. If a shard may have more, timers after its last one are left out (`is_cut`),
-- so that no timer in between is missing.
WITH near AS MATERIALIZED (
    SELECT t.*
    FROM unnest(:shards::smallint[]) AS s (shard)
    CROSS JOIN LATERAL (
        SELECT v.job, v.tenant, v.due_at, v.version, v.fired, v.recurs,
               row_number() OVER (ORDER BY v.due_at, v.tenant, v.job) AS place
        FROM timers AS v
        WHERE v.shard = s.shard AND v.due_at IS NOT NULL AND v.due_at <= :until::bigint
          AND (v.due_at, v.tenant, v.job) > (:after_due_at::bigint, :after_tenant::text, :after_job::uuid)
        ORDER BY v.due_at, v.tenant, v.job LIMIT :each::bigint) AS t
),
bound AS MATERIALIZED (
    SELECT due_at, tenant, job FROM near WHERE place = :each::bigint ORDER BY due_at, tenant, job LIMIT 1
),
page AS MATERIALIZED (
    SELECT n.* FROM near AS n LEFT JOIN bound AS b ON true
    WHERE b.job IS NULL OR (n.due_at, n.tenant, n.job) <= (b.due_at, b.tenant, b.job)
    ORDER BY n.due_at, n.tenant, n.job LIMIT :limit::bigint
),
sized AS (
    SELECT p.due_at, p.tenant, p.job,
           rtrim(json_build_array(p.job, p.tenant, p.due_at, p.version, p.fired, p.recurs, j.created_at)::text, ']')
           || ',' || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END
           || ']' AS row,
           -- A page is bounded in bytes too: as many rows as have :bytes together, but at least one.
           sum(octet_length(j.spec)) OVER (ORDER BY p.due_at, p.tenant, p.job ROWS UNBOUNDED PRECEDING) AS bytes,
           row_number() OVER (ORDER BY p.due_at, p.tenant, p.job) AS place
    FROM page AS p JOIN jobs AS j ON j.id = p.job
)
SELECT '[' || string_agg(row, ',' ORDER BY due_at, tenant, job) || ']' AS rows,
       EXISTS (SELECT 1 FROM bound) AND (SELECT count(*) FROM page) < :limit::bigint AS is_cut
FROM sized WHERE bytes <= :bytes::bigint OR place = 1;

-- name: list_due_timers_beside
-- The same without some tenants: these may have millions of timers due at one instant, which one step skips. A step is a
-- probe that finds the next timer of a shard. There are at most :each steps in each shard.
WITH RECURSIVE walk (shard, due_at, tenant, job, step) AS (
    SELECT s.shard, n.due_at, n.tenant, n.job, 1::bigint FROM unnest(:shards::smallint[]) AS s (shard)
    CROSS JOIN LATERAL (
        SELECT v.due_at, v.tenant, v.job FROM timers AS v
        WHERE v.shard = s.shard AND v.due_at IS NOT NULL AND v.due_at <= :until::bigint
          AND (v.due_at, v.tenant, v.job) > (:after_due_at::bigint, :after_tenant::text, :after_job::uuid)
        ORDER BY v.due_at, v.tenant, v.job LIMIT 1) AS n
    UNION ALL
    SELECT w.shard, n.due_at, n.tenant, n.job, w.step + 1 FROM walk AS w
    CROSS JOIN LATERAL (
        SELECT v.due_at, v.tenant, v.job FROM timers AS v
        WHERE v.shard = w.shard AND v.due_at IS NOT NULL AND v.due_at <= :until::bigint
          -- (The largest id: it skips all timers of this tenant at that instant.)
          AND (v.due_at, v.tenant, v.job) > (w.due_at, w.tenant, CASE WHEN w.tenant = ANY (:without::text[])
                                             THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid ELSE w.job END)
        ORDER BY v.due_at, v.tenant, v.job LIMIT 1) AS n
    WHERE w.step < :each::bigint
),
seen AS MATERIALIZED (SELECT * FROM walk),
bound AS MATERIALIZED (
    SELECT due_at, tenant, job FROM seen WHERE step = :each::bigint ORDER BY due_at, tenant, job LIMIT 1
),
page AS MATERIALIZED (
    SELECT t.job, t.tenant, t.due_at, t.version, t.fired, t.recurs
    FROM seen AS n LEFT JOIN bound AS b ON true JOIN timers AS t ON t.job = n.job
    WHERE n.tenant <> ALL (:without::text[])
      AND (b.job IS NULL OR (n.due_at, n.tenant, n.job) <= (b.due_at, b.tenant, b.job))
    ORDER BY n.due_at, n.tenant, n.job LIMIT :limit::bigint
),
sized AS (
    SELECT p.due_at, p.tenant, p.job,
           rtrim(json_build_array(p.job, p.tenant, p.due_at, p.version, p.fired, p.recurs, j.created_at)::text, ']')
           || ',' || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END
           || ']' AS row,
           sum(octet_length(j.spec)) OVER (ORDER BY p.due_at, p.tenant, p.job ROWS UNBOUNDED PRECEDING) AS bytes,
           row_number() OVER (ORDER BY p.due_at, p.tenant, p.job) AS place
    FROM page AS p JOIN jobs AS j ON j.id = p.job
)
SELECT '[' || string_agg(row, ',' ORDER BY due_at, tenant, job) || ']' AS rows,
       EXISTS (SELECT 1 FROM bound) AS is_cut
FROM sized WHERE bytes <= :bytes::bigint OR place = 1;

-- name: next_due_at
SELECT coalesce(min(t.due_at)::text, 'null') AS row FROM unnest(:shards::smallint[]) AS s (shard)
CROSS JOIN LATERAL (SELECT v.due_at FROM timers AS v WHERE v.shard = s.shard AND v.due_at IS NOT NULL
                    ORDER BY v.due_at LIMIT 1) AS t;

-- name: next_waiting_at
-- (`attempt >= 0` is always true. It selects the indexes with this condition, here and below, which no claim must use.)
SELECT due_at::text AS row FROM open_runs WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0
ORDER BY due_at LIMIT 1;

-- name: next_waiting_at_only
SELECT coalesce(min(w.due_at)::text, 'null') AS row
FROM generate_series(0, 9) AS p (priority) CROSS JOIN unnest(:only::bigint[]) AS n (endpoint)
CROSS JOIN LATERAL (SELECT o.due_at FROM open_runs AS o
                    WHERE o.tenant = :tenant::text AND o.priority = p.priority::smallint AND o.endpoint = n.endpoint
                      AND o.state <> 'RUNNING' AND NOT o.held
                    ORDER BY o.due_at LIMIT 1) AS w;

-- name: list_waiting_tenants
-- One probe finds the next tenant and when its first execution is due.
WITH RECURSIVE found (tenant, due_at) AS (
    (SELECT tenant, due_at FROM open_runs
     WHERE tenant > :after::text AND state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0
     ORDER BY tenant, due_at LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.due_at FROM found AS f CROSS JOIN LATERAL (
        SELECT o.tenant, o.due_at FROM open_runs AS o
        WHERE o.tenant > f.tenant AND o.state <> 'RUNNING' AND NOT o.held AND o.endpoint >= 0 AND o.attempt >= 0
        ORDER BY o.tenant, o.due_at LIMIT 1) AS n
)
SELECT to_json(tenant)::text AS row FROM found WHERE due_at <= :now::bigint LIMIT :limit::bigint;

-- name: next_waiting_of
SELECT coalesce(min(due_at)::text, 'null') AS row FROM open_runs
WHERE job = :job::uuid AND state <> 'RUNNING' AND NOT held;

-- name: list_workers
-- Up to :bytes of names; the worker that exceeds them is the last one.
SELECT json_build_array(node, tenant, user_id, name, functions::json, slots, started_at, seen_at, beats)::text AS row
FROM (
    SELECT *, sum(octet_length(functions)) OVER (ORDER BY node DESC ROWS UNBOUNDED PRECEDING) - octet_length(functions)
        AS bytes_before
    FROM workers
    WHERE (:tenant::text IS NULL OR tenant = :tenant::text) AND (:before::integer IS NULL OR node < :before::integer)
      AND (:function::text IS NULL OR :function::text IN (SELECT json_array_elements_text(functions::json)))
    ORDER BY node DESC LIMIT :limit::bigint) AS w
WHERE bytes_before < :bytes::bigint ORDER BY node DESC;

-- name: list_beats
SELECT json_build_array(node, beats)::text AS row
FROM (SELECT node, beats FROM workers WHERE node > :after::integer ORDER BY node LIMIT :limit::bigint) AS w;

-- name: get_claims
SELECT rtrim(json_build_array(r.execution, r.job, r.tenant, r.scheduled_at, r.trigger, r.priority, r.endpoint, r.attempt,
                              r.token, r.cancel_requested)::text, ']') || ','
       || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END || ']' AS row
FROM open_runs AS r JOIN jobs AS j ON j.id = r.job
WHERE r.state = 'RUNNING' AND r.node = :worker::integer AND r.execution = ANY (:ids::uuid[])
  AND (:tenant::text IS NULL OR r.tenant = :tenant::text);

-- name: list_claims
SELECT json_build_array(execution, attempt, token, cancel_requested)::text AS row FROM open_runs
WHERE state = 'RUNNING' AND node = :worker::integer AND tenant = :tenant::text LIMIT :limit::bigint;

-- name: list_node_claims
SELECT json_build_array(execution, token)::text AS row FROM open_runs
WHERE state = 'RUNNING' AND node = :node::integer LIMIT :limit::bigint;

-- name: get_progress
SELECT json_build_array(p.execution, p.value)::text AS row
FROM unnest(:ids::uuid[], :ats::bigint[]) AS i (id, at)
JOIN progress AS p ON p.scheduled_at = i.at AND p.execution = i.id;

-- name: list_expired_claims
-- Finds the few nodes that run executions, with one probe each; then the executions of the fenced ones: as many as have
-- :bytes together, but at least one. The next read returns the others.
WITH RECURSIVE busy (node) AS (
    SELECT min(node) FROM open_runs WHERE state = 'RUNNING'
    UNION ALL
    SELECT (SELECT min(o.node) FROM open_runs AS o WHERE o.state = 'RUNNING' AND o.node > b.node)
    FROM busy AS b WHERE b.node IS NOT NULL
),
near AS MATERIALIZED (
    SELECT r.*
    FROM busy AS b
    CROSS JOIN LATERAL (SELECT * FROM open_runs AS o WHERE o.state = 'RUNNING' AND o.node = b.node LIMIT :limit::bigint) AS r
    WHERE b.node <> :node::integer AND NOT EXISTS (SELECT 1 FROM nodes AS n WHERE n.id = b.node AND n.ended_at IS NULL)
    LIMIT :limit::bigint
),
page AS MATERIALIZED (
    SELECT n.*, j.size, sum(j.size) OVER (ORDER BY n.execution ROWS UNBOUNDED PRECEDING) AS bytes
    FROM near AS n JOIN jobs AS j ON j.id = n.job
)
SELECT rtrim(json_build_array(r.execution, r.job, r.tenant, r.scheduled_at, r.trigger, r.priority, r.endpoint, r.attempt,
                              r.token, r.cancel_requested)::text, ']') || ','
       || CASE WHEN j.size > 4608 THEN '{"type":"large","spec":' || j.spec || '}' ELSE j.spec END || ']' AS row
FROM page AS r JOIN jobs AS j ON j.id = r.job
WHERE r.bytes <= :bytes::bigint OR r.bytes = r.size;

-- name: list_tenants
SELECT json_build_array(i.id, e.tenant)::text AS row
FROM unnest(:ids::uuid[], :ats::bigint[]) AS i (id, at) JOIN executions AS e ON e.scheduled_at = i.at AND e.id = i.id;

-- name: newest_at
SELECT coalesce(greatest((SELECT max(started_at) FROM nodes), (SELECT max(scheduled_at) FROM executions))::text,
                'null') AS row;

-- name: list_attempts
SELECT json_build_array(a.attempt, n.name, a.started_at, a.ended_at, a.error_type, a.error_message, a.http_status,
                        a.exit_code, a.response)::text AS row
FROM attempts AS a LEFT JOIN nodes AS n ON n.id = a.node
WHERE a.scheduled_at = :at::bigint AND a.execution = :execution::uuid
ORDER BY a.attempt;

-- name: list_links
SELECT json_build_array(c.key, c.is_done, j.owner)::text AS row
FROM chains AS c LEFT JOIN jobs AS j ON j.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.tenant = c.tenant AND i.id =
                                                            CASE WHEN c.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.key::uuid END),
                                                        (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
WHERE c.job = :job::uuid ORDER BY c.key;

-- name: list_watched_jobs
SELECT json_build_array(w.job, w.tenant, j.owner, j.name, j.type, t.status, w.since, t.last_success_at, w.expect_every,
                        w.slo::json, coalesce(j.tags, '{}'::jsonb))::text AS row
FROM watched_jobs AS w JOIN jobs AS j ON j.id = w.job JOIN timers AS t ON t.job = w.job
WHERE w.job > :after::uuid
ORDER BY w.job LIMIT :limit::bigint;

-- name: list_lateness
SELECT greatest(l.started_at - l.scheduled_at, 0)::text AS row FROM (
    SELECT e.scheduled_at, coalesce(o.started_at, e.started_at) AS started_at
    FROM executions AS e LEFT JOIN open_runs AS o ON o.job = e.job AND o.execution = e.id AND e.state IS NULL
    WHERE e.job = :job::uuid AND coalesce(o.started_at, e.started_at) IS NOT NULL AND e.trigger <> 'retry'
    ORDER BY e.scheduled_at DESC LIMIT :limit::bigint) AS l;

-- name: get_counter
SELECT coalesce(sum(value), 0)::text AS row FROM counters WHERE tenant = :tenant::text AND name = ANY (:names::text[]);

-- name: list_to_stop
SELECT to_json(execution)::text AS row FROM open_runs
WHERE cancel_requested AND node = :node::integer AND state = 'RUNNING' LIMIT :limit::bigint;

-- name: count_dead
SELECT count(*)::text AS row FROM (SELECT 1 FROM executions WHERE dead LIMIT :limit::bigint) AS found;

-- name: get_load
SELECT json_build_array(coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0)::bigint,
                        coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)::bigint)::text AS row
FROM counters WHERE tenant = '' AND day = 0;

-- name: list_audit_pages
-- Entries that no link covers are a page without a hash.
SELECT json_build_array(p.chain, p.link, coalesce(encode(l.hash, 'hex'), ''), (
           SELECT coalesce(json_agg(json_build_array(a.tenant, a.resource, a.entry) ORDER BY a.position), '[]')
           FROM audit AS a WHERE a.chain = p.chain AND a.link = p.link))::text AS row
FROM (
    (SELECT chain, link FROM audit_links WHERE (chain, link) > (:chain::smallint, :link::bigint)
     ORDER BY chain, link LIMIT :limit::bigint)
    UNION
    (SELECT DISTINCT chain, link FROM audit WHERE (chain, link) > (:chain::smallint, :link::bigint)
     ORDER BY chain, link LIMIT :limit::bigint)
    ORDER BY chain, link LIMIT :limit::bigint) AS p
LEFT JOIN audit_links AS l ON l.chain = p.chain AND l.link = p.link
ORDER BY p.chain, p.link;

-- name: list_audit_checkpoints
SELECT json_build_array(chain, link, encode(hash, 'hex'), at)::text AS row FROM audit_checkpoints ORDER BY chain;

-- name: list_specs
SELECT rtrim(json_build_array(j.id, j.tenant, t.version)::text, ']') || ',' || j.spec || ']' AS row
FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE j.id > :after::uuid ORDER BY j.id LIMIT :limit::bigint;

-- name: load_circuits
-- As list_circuits, with the mark from which the next read continues: the oldest transaction that is still running.
SELECT json_build_array(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, coalesce((
    SELECT json_agg(json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)) FROM (
        SELECT * FROM circuits WHERE failures > 0
        ORDER BY opened_at IS NULL, touched_at DESC, id LIMIT :limit::bigint) AS c), '[]'))::text AS row;

-- name: list_changed_circuits
-- Returns the changes of transactions that were running when the mark was read, or began later: no change is missed,
-- whatever the order of their commits. During a long transaction, changes of others are read more than once.
SELECT json_build_array(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, coalesce((
    SELECT json_agg(json_build_array(id, tenant, url, failures, opened_at, next_probe_at, probe)) FROM (
        SELECT * FROM circuits WHERE changed_in >= :since::bigint::text::xid8
        ORDER BY changed_in LIMIT :limit::bigint) AS c), '[]'))::text AS row;

-- name: count_due_timers
-- Reads up to :limit timers of each shard, and counts the first :limit of them.
SELECT json_build_array(t.tenant, count(*))::text AS row FROM (
    SELECT n.tenant FROM generate_series(0, 63) AS s (shard)
    CROSS JOIN LATERAL (SELECT v.tenant, v.due_at FROM timers AS v
                        WHERE v.shard = s.shard::smallint AND v.due_at >= :since::bigint AND v.due_at < :until::bigint
                        ORDER BY v.due_at LIMIT :limit::bigint) AS n
    LIMIT :limit::bigint) AS t
GROUP BY t.tenant;

-- name: count_waiting
SELECT ((SELECT count(*) FROM (
            SELECT 1 FROM open_runs AS o
            WHERE o.tenant = :tenant::text AND o.due_at < :until::bigint
              AND o.state <> 'RUNNING' AND NOT o.held AND o.endpoint >= 0 AND o.attempt >= 0
            LIMIT :limit::bigint) AS n)
      + (SELECT count(*) FROM (
            SELECT o.due_at FROM generate_series(0, 9) AS p (priority)
            CROSS JOIN LATERAL (SELECT v.due_at FROM open_runs AS v
                                WHERE v.tenant = :tenant::text AND v.priority = p.priority::smallint AND v.endpoint < 0
                                  AND v.state <> 'RUNNING' AND NOT v.held LIMIT :limit::bigint) AS o
            LIMIT :limit::bigint) AS w
         WHERE w.due_at < :until::bigint))::text AS row;

-- name: list_ends
SELECT json_build_array(scheduled_at, started_at, ended_at, state, trigger)::text AS row FROM (
    SELECT * FROM executions
    WHERE job = :job::uuid AND scheduled_at >= :since::bigint AND scheduled_at < :until::bigint
      AND state IS NOT NULL AND state <> 'SKIPPED'
    ORDER BY scheduled_at DESC, extra DESC LIMIT :limit::bigint) AS e;

-- name: list_events
SELECT json_build_array((SELECT number FROM event_head), (SELECT number FROM event_prune), coalesce((
    SELECT json_agg(json_build_array(number, tenant, events::json)) FROM (
        SELECT number, tenant, events FROM events
        WHERE tenant = ANY (:tenants::text[]) AND number > :after::bigint AND number <= (
            SELECT max(number) FROM (
                SELECT DISTINCT number FROM events WHERE tenant = ANY (:tenants::text[]) AND number > :after::bigint
                ORDER BY number LIMIT :limit::bigint) AS pages)
        ORDER BY number, tenant) AS e), '[]'))::text AS row;
