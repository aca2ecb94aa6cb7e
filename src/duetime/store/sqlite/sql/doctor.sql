-- Queries of `duetime doctor`.

-- name: count_due_timers
SELECT count(*), coalesce(max(:now - due_at), 0) FROM (
    SELECT due_at FROM timers INDEXED BY timers_due WHERE due_at IS NOT NULL AND due_at <= :now ORDER BY due_at LIMIT :most);

-- name: count_waiting_executions
-- Counts up to :most.
SELECT count(*), coalesce(max(:now - due_at), 0) FROM (
    SELECT due_at FROM executions INDEXED BY executions_waiting_due
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0 AND due_at <= :now
    ORDER BY due_at LIMIT :most);

-- name: count_lost_executions
-- While no node runs, a killed node may not have been ended yet.
SELECT count(*), max(:now - n.ended_at)
FROM executions AS e INDEXED BY executions_open LEFT JOIN nodes AS n ON n.id = e.node
WHERE e.state IN ('QUEUED', 'RUNNING', 'RETRYING') AND e.state = 'RUNNING'
  AND (n.id IS NULL OR n.ended_at IS NOT NULL OR NOT :is_running)
  AND e.node NOT IN (SELECT node FROM workers);

-- name: list_missing_functions
-- Returns up to :named functions that no worker has, out of :most waiting executions.
SELECT DISTINCT j.spec ->> '$.payload.function' AS function
FROM (
    SELECT endpoint, job FROM (
        SELECT e.endpoint, e.job FROM executions AS e INDEXED BY executions_waiting_at
        WHERE e.endpoint < 0 AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.due_at <= :now
        LIMIT :most)
    GROUP BY endpoint
) AS w
CROSS JOIN jobs AS j ON j.id = w.job
WHERE NOT EXISTS (
    SELECT 1 FROM workers AS k CROSS JOIN json_each(k.functions) AS f
    WHERE k.tenant = j.tenant AND f.value = j.spec ->> '$.payload.function')
ORDER BY function LIMIT :named;

-- name: count_waiting_functions
-- Counts executions that only a worker can run, up to :most.
SELECT count(*), coalesce(max(:now - due_at), 0), (SELECT count(*) FROM workers) FROM (
    SELECT e.due_at FROM executions AS e INDEXED BY executions_waiting_at
    WHERE e.endpoint < 0 AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.due_at <= :now
    LIMIT :most);
