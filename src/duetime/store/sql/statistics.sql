-- Statistics of ended attempts, and reports of nodes. Rows of statistics are written one page at a time.

-- name: report_node
INSERT INTO node_reports (node, at, facts) VALUES (:node::integer, :now::bigint, :facts::text)
ON CONFLICT (node) DO UPDATE SET at = excluded.at, facts = excluded.facts;

-- name: prune_node_reports
DELETE FROM node_reports WHERE at < :before::bigint;

-- name: get_bucket_to_roll_up
SELECT bucket_at FROM statistics WHERE span = :span::integer AND bucket_at < :until::bigint ORDER BY bucket_at LIMIT 1;

-- name: list_to_roll_up
-- Rows of the buckets [:since, :until).
SELECT span, bucket_at, tenant, type, subject, node, tally FROM statistics
WHERE span = :span::integer AND bucket_at >= :since::bigint AND bucket_at < :until::bigint
ORDER BY bucket_at, tenant, subject, type, node LIMIT :limit::bigint;

-- name: count_bucket
SELECT count(*) FROM statistics WHERE span = :span::integer AND bucket_at = :bucket_at::bigint;
