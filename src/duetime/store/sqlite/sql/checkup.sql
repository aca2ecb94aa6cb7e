-- What `duetime doctor` reads.

-- name: count_due_timers
SELECT count(*), coalesce(max(:now - due_at), 0) FROM (
    SELECT due_at FROM timers INDEXED BY timers_due WHERE due_at IS NOT NULL AND due_at <= :now ORDER BY due_at LIMIT :most);

-- name: count_waiting_runs
-- The earliest of each priority by a probe; counted are :most in all.
WITH waiting AS (
    SELECT e.due_at FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p CROSS JOIN executions AS e INDEXED BY executions_waiting
    WHERE e.priority = p.value AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.endpoint >= 0 AND e.due_at <= :now
)
SELECT (SELECT count(*) FROM (SELECT 1 FROM waiting LIMIT :most)), coalesce((
    SELECT max(:now - due_at) FROM (
        SELECT (SELECT min(e.due_at) FROM executions AS e INDEXED BY executions_waiting
                WHERE e.priority = p.value AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.endpoint >= 0 AND e.due_at <= :now) AS due_at
        FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p)), 0);

-- name: count_lost_runs
-- Where no node runs at all, nobody has ended those yet that a kill left behind.
SELECT count(*), max(:now - n.ended_at)
FROM executions AS e INDEXED BY executions_open LEFT JOIN nodes AS n ON n.id = e.node
WHERE e.state IN ('QUEUED', 'RUNNING', 'RETRYING') AND e.state = 'RUNNING'
  AND (n.id IS NULL OR n.ended_at IS NOT NULL OR NOT :is_running)
  AND e.node NOT IN (SELECT node FROM workers);

-- name: count_waiting_functions
-- What only a worker can run; counted are :most.
SELECT count(*), coalesce(max(:now - due_at), 0), (SELECT count(*) FROM workers) FROM (
    SELECT e.due_at FROM json_each('[9,8,7,6,5,4,3,2,1,0]') AS p
    CROSS JOIN executions AS e INDEXED BY executions_waiting_at
    WHERE e.priority = p.value AND e.endpoint < 0 AND e.state IN ('QUEUED', 'RETRYING') AND e.held = 0 AND e.due_at <= :now
    LIMIT :most);
