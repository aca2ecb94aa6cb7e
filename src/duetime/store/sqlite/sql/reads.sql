-- Each block selects one column, `row`: a JSON array in the order of the struct's fields. The reader wraps a block so
-- that it returns all rows as one JSON text: one call into SQLite, one decode into typed structs.
-- A job's spec is JSON already and is copied in as it is: to parse and print it again would cost more than the rest.
-- A large spec (4,096 bytes, and 512 that are always counted) has another form where the engine holds it: the reader
-- does not decode it (`domain/held_specs.py`).

-- name: list_due_timers
-- Differs from the PostgreSQL version in that one index has the timers of all shards; PostgreSQL reads a few timers of
-- each shard.
SELECT rtrim(json_array(uuid_text(t.job), t.tenant, t.due_at, t.version, t.fired), ']')
       || ',' || iif(t.recurs, 'true', 'false') || ',' || j.created_at || ','
       || iif(j.size > 4608, '{"type":"large","spec":' || j.spec || '}', j.spec) || ']' AS row
FROM timers AS t INDEXED BY timers_due CROSS JOIN jobs AS j ON j.id = t.job
WHERE t.due_at IS NOT NULL AND t.due_at <= :until
  AND (t.due_at, t.tenant, t.job) > (:after_due_at, :after_tenant, unhex(:after_job, '-'))
  AND (:shards IS NULL OR t.shard IN (SELECT value FROM json_each(:shards)))
ORDER BY t.due_at, t.tenant, t.job
-- A page is bounded in bytes too: as many rows as have :bytes together, but at least one.
LIMIT max(1, (
    SELECT count(*) FROM (
        SELECT sum(octet_length(w.spec)) OVER (ORDER BY v.due_at, v.tenant, v.job ROWS UNBOUNDED PRECEDING) AS bytes
        FROM timers AS v INDEXED BY timers_due CROSS JOIN jobs AS w ON w.id = v.job
        WHERE v.due_at IS NOT NULL AND v.due_at <= :until
          AND (v.due_at, v.tenant, v.job) > (:after_due_at, :after_tenant, unhex(:after_job, '-'))
          AND (:shards IS NULL OR v.shard IN (SELECT value FROM json_each(:shards)))
        ORDER BY v.due_at, v.tenant, v.job
        LIMIT :limit)
    WHERE bytes <= :bytes));

-- name: list_due_timers_beside
-- The same without some tenants: these may have millions of timers due at one instant, which one step skips. A step finds
-- the next timer, by its job (a subquery has one column): one of the same tenant, else of the next tenant, else of the
-- next instant. (Not by `(due_at, tenant, job) > (…)`, which reads all timers of the instant: 10 ms for 50,000.) There
-- are at most :steps steps.
WITH RECURSIVE walk (due_at, tenant, job) AS (
    SELECT t.due_at, t.tenant, t.job FROM timers AS t
    WHERE t.job = coalesce(
        (SELECT n.job FROM timers AS n INDEXED BY timers_due
         WHERE n.due_at = :after_due_at AND n.tenant = :after_tenant AND n.job > unhex(:after_job, '-')
           AND n.due_at <= :until ORDER BY n.job LIMIT 1),
        (SELECT n.job FROM timers AS n INDEXED BY timers_due
         WHERE n.due_at = :after_due_at AND n.tenant > :after_tenant AND n.due_at <= :until
         ORDER BY n.tenant, n.job LIMIT 1),
        (SELECT n.job FROM timers AS n INDEXED BY timers_due
         WHERE n.due_at > :after_due_at AND n.due_at <= :until ORDER BY n.due_at, n.tenant, n.job LIMIT 1))
    UNION ALL
    SELECT t.due_at, t.tenant, t.job FROM walk AS w CROSS JOIN timers AS t
    ON t.job = coalesce(
        CASE WHEN w.tenant NOT IN (SELECT value FROM json_each(:without)) THEN
            (SELECT n.job FROM timers AS n INDEXED BY timers_due
             WHERE n.due_at = w.due_at AND n.tenant = w.tenant AND n.job > w.job ORDER BY n.job LIMIT 1) END,
        (SELECT n.job FROM timers AS n INDEXED BY timers_due
         WHERE n.due_at = w.due_at AND n.tenant > w.tenant ORDER BY n.tenant, n.job LIMIT 1),
        (SELECT n.job FROM timers AS n INDEXED BY timers_due
         WHERE n.due_at > w.due_at AND n.due_at <= :until ORDER BY n.due_at, n.tenant, n.job LIMIT 1))
    LIMIT :steps
),
page AS MATERIALIZED (
    SELECT t.job, t.tenant, t.due_at, t.version, t.fired, t.recurs
    FROM walk AS w CROSS JOIN timers AS t ON t.job = w.job
    WHERE w.tenant NOT IN (SELECT value FROM json_each(:without))
      AND (:shards IS NULL OR t.shard IN (SELECT value FROM json_each(:shards)))
    ORDER BY t.due_at, t.tenant, t.job LIMIT :limit
),
sized AS (
    SELECT t.due_at, t.tenant, t.job,
           rtrim(json_array(uuid_text(t.job), t.tenant, t.due_at, t.version, t.fired), ']')
           || ',' || iif(t.recurs, 'true', 'false') || ',' || j.created_at || ','
       || iif(j.size > 4608, '{"type":"large","spec":' || j.spec || '}', j.spec) || ']' AS row,
           sum(octet_length(j.spec)) OVER (ORDER BY t.due_at, t.tenant, t.job ROWS UNBOUNDED PRECEDING) AS bytes,
           row_number() OVER (ORDER BY t.due_at, t.tenant, t.job) AS place
    FROM page AS t CROSS JOIN jobs AS j ON j.id = t.job
)
SELECT row FROM sized WHERE bytes <= :bytes OR place = 1 ORDER BY due_at, tenant, job;

-- name: next_due_at
SELECT due_at AS row FROM timers INDEXED BY timers_due
WHERE due_at IS NOT NULL AND (:shards IS NULL OR shard IN (SELECT value FROM json_each(:shards)))
ORDER BY due_at LIMIT 1;

-- name: next_waiting_at
SELECT coalesce(min(due_at), 'null') AS row FROM executions INDEXED BY executions_waiting_due
WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;

-- name: next_waiting_at_only
SELECT coalesce(min(due_at), 'null') AS row FROM (
    SELECT (SELECT min(e.due_at) FROM executions AS e INDEXED BY executions_waiting_at
            WHERE e.tenant = :tenant AND e.priority = p.value AND e.endpoint = o.value
              AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0) AS due_at
    FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p CROSS JOIN json_each(:only) AS o);

-- name: list_waiting_tenants
-- One probe finds the next tenant, another one when its first execution is due.
WITH RECURSIVE found (tenant) AS (
    SELECT (SELECT min(tenant) FROM executions INDEXED BY executions_waiting_of
            WHERE tenant > :after AND state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0)
    UNION ALL
    SELECT (SELECT min(e.tenant) FROM executions AS e INDEXED BY executions_waiting_of
            WHERE e.tenant > f.tenant AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.endpoint >= 0)
    FROM found AS f WHERE f.tenant IS NOT NULL
)
SELECT json_quote(f.tenant) AS row FROM found AS f
WHERE f.tenant IS NOT NULL AND EXISTS (
    SELECT 1 FROM executions AS d INDEXED BY executions_waiting_of
    WHERE d.tenant = f.tenant AND d.due_at <= :now AND d.state IN ('QUEUED', 'RETRYING') AND d.held = 0 AND d.endpoint >= 0)
LIMIT :limit;

-- name: next_waiting_of
SELECT coalesce(min(due_at), 'null') AS row FROM executions
WHERE job = unhex(:job, '-') AND state IN ('QUEUED', 'RUNNING', 'RETRYING') AND state <> 'RUNNING' AND held = 0;

-- name: list_workers
-- Up to :bytes of names; the worker that exceeds them is the last one.
SELECT json_array(node, tenant, user_id, name, json(functions), slots, started_at, seen_at, beats) AS row FROM (
    SELECT *, sum(octet_length(functions)) OVER (ORDER BY node DESC ROWS UNBOUNDED PRECEDING) - octet_length(functions)
        AS bytes_before
    FROM workers
    WHERE (:tenant IS NULL OR tenant = :tenant) AND (:before IS NULL OR node < :before)
      AND (:function IS NULL OR :function IN (SELECT value FROM json_each(functions)))
    ORDER BY node DESC LIMIT :limit)
WHERE bytes_before < :bytes ORDER BY node DESC;

-- name: list_beats
SELECT json_array(node, beats) AS row FROM workers WHERE node > :after ORDER BY node LIMIT :limit;

-- name: get_claims
SELECT rtrim(json_array(uuid_text(e.id), uuid_text(e.job), e.tenant, e.scheduled_at, e.trigger, e.priority, e.endpoint, e.attempt,
                        e.token), ']')
       || ',' || iif(e.cancel_requested, 'true', 'false') || ','
       || iif(j.size > 4608, '{"type":"large","spec":' || j.spec || '}', j.spec) || ']' AS row
FROM json_each(:ids) AS i
CROSS JOIN executions AS e ON e.id = unhex(i.value, '-')
CROSS JOIN jobs AS j ON j.id = e.job
WHERE e.state = 'RUNNING' AND e.node = :worker AND (:tenant IS NULL OR e.tenant = :tenant);

-- name: list_claims
SELECT '["' || uuid_text(id) || '",' || attempt || ',' || token || ',' || iif(cancel_requested, 'true', 'false') || ']' AS row
FROM executions INDEXED BY executions_of_worker
WHERE state = 'RUNNING' AND endpoint < 0 AND node = :worker AND tenant = :tenant LIMIT :limit;

-- name: list_node_claims
-- Differs from the PostgreSQL version in that it reads all open executions, page by page; PostgreSQL has an index by
-- node.
-- Reads the next :limit open executions after one. An index by node would make every start and end of an execution
-- slower, and a node reads this twice a minute. Executions of other nodes are returned, too, and marked.
SELECT json_array(uuid_text(id), token, state, uuid_text(job), node IS :node AND state = 'RUNNING') AS row FROM (
    SELECT id, job, state, token, node FROM executions INDEXED BY executions_open
    WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING')
      AND (job, state, id) > (unhex(:after_job, '-'), :after_state, unhex(:after_id, '-'))
    ORDER BY job, state, id LIMIT :limit);

-- name: get_progress
SELECT json_array(uuid_text(p.execution), p.value) AS row
FROM json_each(:ids) AS i CROSS JOIN progress AS p ON p.execution = unhex(i.value, '-');

-- name: list_expired_claims
-- As many as have :bytes together, but at least one: the next read returns the others.
WITH near AS MATERIALIZED (
    SELECT e.id, e.job, e.tenant, e.scheduled_at, e.trigger, e.priority, e.endpoint, e.attempt, e.token, e.cancel_requested
    FROM executions AS e INDEXED BY executions_open
    WHERE e.state IN ('QUEUED', 'RUNNING', 'RETRYING') AND e.state = 'RUNNING' AND e.node <> :node
      AND NOT EXISTS (SELECT 1 FROM nodes AS n WHERE n.id = e.node AND n.ended_at IS NULL)
    LIMIT :limit
),
page AS MATERIALIZED (
    SELECT n.*, sum(j.size) OVER (ORDER BY n.id ROWS UNBOUNDED PRECEDING) AS bytes, j.size
    FROM near AS n CROSS JOIN jobs AS j ON j.id = n.job
)
SELECT rtrim(json_array(uuid_text(e.id), uuid_text(e.job), e.tenant, e.scheduled_at, e.trigger, e.priority, e.endpoint, e.attempt,
                        e.token), ']')
       || ',' || iif(e.cancel_requested, 'true', 'false') || ','
       || iif(j.size > 4608, '{"type":"large","spec":' || j.spec || '}', j.spec) || ']' AS row
FROM page AS e CROSS JOIN jobs AS j ON j.id = e.job
WHERE e.bytes <= :bytes OR e.bytes = e.size;

-- name: list_tenants
SELECT json_array(i.value, e.tenant) AS row
FROM json_each(:ids) AS i CROSS JOIN executions AS e ON e.id = unhex(i.value, '-');

-- name: newest_at
-- (The end of a node does not count: for a killed node, it is the time of the next start.)
SELECT coalesce(max(at), 'null') AS row FROM (
    SELECT max(started_at) AS at FROM nodes
    UNION ALL SELECT (SELECT scheduled_at FROM executions ORDER BY id DESC LIMIT 1));

-- name: list_attempts
SELECT json_array(a.attempt, n.name, a.started_at, a.ended_at, a.error_type, a.error_message, a.http_status, a.exit_code,
                  a.response) AS row
FROM attempts AS a LEFT JOIN nodes AS n ON n.id = a.node
WHERE a.execution = unhex(:execution, '-')
ORDER BY a.attempt;

-- name: list_links
SELECT '[' || json_quote(c.key) || ',' || iif(c.is_done, 'true', 'false') || ',' || json_quote(j.owner) || ']' AS row
FROM chains AS c
LEFT JOIN jobs AS j ON j.id = coalesce((SELECT i.id FROM jobs AS i WHERE i.id = unhex(c.key, '-') AND i.tenant = c.tenant AND uuid_text(i.id) = c.key),
                                       (SELECT k.id FROM jobs AS k WHERE k.tenant = c.tenant AND k.key = c.key))
WHERE c.job = unhex(:job, '-') ORDER BY c.key;

-- name: list_watched_jobs
SELECT json_array(uuid_text(w.job), w.tenant, j.owner, j.name, j.type, t.status, w.since, t.last_success_at, w.expect_every,
                  json(w.slo), json(coalesce(j.spec -> '$.tags', '{}'))) AS row
FROM watched_jobs AS w
CROSS JOIN jobs AS j ON j.id = w.job
CROSS JOIN timers AS t ON t.job = w.job
WHERE w.job > unhex(:after, '-')
ORDER BY w.job LIMIT :limit;

-- name: list_lateness
SELECT max(started_at - scheduled_at, 0) AS row
FROM executions
WHERE job = unhex(:job, '-') AND started_at IS NOT NULL AND trigger <> 'retry'
ORDER BY scheduled_at DESC LIMIT :limit;

-- name: get_counter
-- Differs from the PostgreSQL version in that it reads one total; PostgreSQL sums over names, days and writers.
SELECT value AS row FROM counters WHERE tenant = :tenant AND name = :name;

-- name: list_to_stop
SELECT json_quote(uuid_text(id)) AS row FROM executions
WHERE state = 'RUNNING' AND node = :node AND cancel_requested = 1 LIMIT :limit;

-- name: count_dead
-- Differs from the PostgreSQL version in that `dead` is a number: 1 is what the partial index says.
SELECT count(*) AS row FROM (SELECT 1 FROM executions WHERE dead = 1 LIMIT :limit);

-- name: get_load
SELECT json_array(coalesce(sum(value) FILTER (WHERE name = 'jobs'), 0),
                  coalesce(sum(value) FILTER (WHERE name = 'bytes'), 0)) AS row
FROM counters WHERE tenant = '';

-- name: list_audit_pages
-- Differs from the PostgreSQL version in that there is one chain, whose number is that of a promoted store in
-- PostgreSQL.
-- Probes of the links and of the entries find the next page: entries that no link covers are a page without a hash. (The
-- array of a subquery is text unless json() marks it.)
WITH RECURSIVE pages (link) AS (
    SELECT min(link) FROM (
        SELECT min(link) AS link FROM audit_links WHERE link > :after
        UNION ALL SELECT min(number) >> 20 FROM audit WHERE number >= (:after + 1) << 20)
    UNION ALL
    SELECT (SELECT min(link) FROM (
        SELECT min(link) AS link FROM audit_links WHERE link > p.link
        UNION ALL SELECT min(number) >> 20 FROM audit WHERE number >= (p.link + 1) << 20))
    FROM pages AS p WHERE p.link IS NOT NULL
    LIMIT :limit
)
SELECT json_array(-1, p.link, coalesce(lower(hex(l.hash)), ''), json((
           SELECT json_group_array(json_array(a.tenant, a.resource, a.entry)) FROM (
               SELECT * FROM audit WHERE number >= p.link << 20 AND number < (p.link + 1) << 20 ORDER BY number) AS a))) AS row
FROM pages AS p LEFT JOIN audit_links AS l ON l.link = p.link WHERE p.link IS NOT NULL ORDER BY p.link;

-- name: list_audit_checkpoints
SELECT json_array(chain, link, lower(hex(hash)), at) AS row FROM audit_checkpoints ORDER BY chain;

-- name: list_specs
SELECT rtrim(json_array(uuid_text(j.id), j.tenant, t.version), ']') || ',' || j.spec || ']' AS row
FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE j.id > unhex(:after, '-') ORDER BY j.id LIMIT :limit;

-- name: load_circuits
-- As list_circuits, with the mark from which the next read continues.
SELECT json_array((SELECT last FROM circuit_changes), json((
    SELECT json_group_array(json_array(id, tenant, url, failures, opened_at, next_probe_at, probe)) FROM (
        SELECT * FROM circuits WHERE failures > 0
        ORDER BY opened_at IS NULL, touched_at DESC, id LIMIT :limit)))) AS row;

-- name: list_changed_circuits
-- Differs from the PostgreSQL version in that the mark is the number of a change; in PostgreSQL it is the oldest
-- running transaction.
SELECT json_array((SELECT last FROM circuit_changes), json((
    SELECT json_group_array(json_array(id, tenant, url, failures, opened_at, next_probe_at, probe)) FROM (
        SELECT * FROM circuits WHERE changed > :since ORDER BY changed LIMIT :limit)))) AS row;

-- name: count_due_timers
-- Differs from the PostgreSQL version in that one index has the timers of all shards.
SELECT json_array(tenant, count(*)) AS row FROM (
    SELECT tenant FROM timers INDEXED BY timers_due
    WHERE due_at IS NOT NULL AND due_at >= :since AND due_at < :until ORDER BY due_at LIMIT :limit)
GROUP BY tenant;

-- name: count_waiting
SELECT (SELECT count(*) FROM (
           SELECT 1 FROM executions AS e INDEXED BY executions_waiting_of
           WHERE e.tenant = :tenant AND e.due_at < :until
             AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.endpoint >= 0
           LIMIT :limit))
     + (SELECT count(*) FROM (
           SELECT e.due_at FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p
           CROSS JOIN executions AS e INDEXED BY executions_waiting_at
           ON e.tenant = :tenant AND e.priority = p.value AND e.endpoint < 0
           WHERE e.state IN ('QUEUED', 'RETRYING') AND e.held = 0
           LIMIT :limit) AS w
        WHERE w.due_at < :until) AS row;

-- name: list_ends
SELECT json_array(scheduled_at, started_at, ended_at, state, trigger) AS row FROM executions
WHERE job = unhex(:job, '-') AND scheduled_at >= :since AND scheduled_at < :until
  AND state NOT IN ('QUEUED', 'RUNNING', 'RETRYING', 'SKIPPED')
ORDER BY scheduled_at DESC, extra DESC LIMIT :limit;

-- name: list_events
SELECT json_array((SELECT number FROM event_head), (SELECT number FROM event_prune), json((
    SELECT json_group_array(json_array(number, tenant, json(events))) FROM (
        SELECT number, tenant, events FROM events
        WHERE tenant IN (SELECT value FROM json_each(:tenants)) AND number > :after AND number <= (
            SELECT max(number) FROM (
                SELECT DISTINCT number FROM events
                WHERE tenant IN (SELECT value FROM json_each(:tenants)) AND number > :after
                ORDER BY number LIMIT :limit))
        ORDER BY number, tenant)))) AS row;
