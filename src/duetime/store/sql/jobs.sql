-- Commands on jobs.

-- name: get_idempotency_key
SELECT fingerprint, response FROM idempotency_keys WHERE tenant = :tenant::text AND key = :key::text;

-- name: change_timer
UPDATE timers
SET version = version + 1, recurs = :recurs::boolean, status = :status::text,
    fired = CASE WHEN :restart::boolean THEN 0 ELSE fired END,
    due_at = CASE WHEN :status::text = 'PENDING' THEN :due_at::bigint END,
    resume_at = CASE WHEN :status::text = 'PAUSED' THEN :due_at::bigint END
WHERE job = :job::uuid;

-- name: keep_timer
UPDATE timers SET version = version + 1 WHERE job = :job::uuid;

-- name: set_timer
UPDATE timers
SET status = :status::text, version = version + 1, due_at = :due_at::bigint, resume_at = :resume_at::bigint
WHERE job = :job::uuid;

-- name: touch_job
UPDATE jobs SET updated_at = :now::bigint WHERE id = :job::uuid;

-- name: set_pause
UPDATE jobs
SET paused_by = :by::text, paused_at = :at::bigint, pause_reason = :reason::text, updated_at = :now::bigint
WHERE id = :job::uuid;
