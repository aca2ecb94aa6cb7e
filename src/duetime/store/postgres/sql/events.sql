-- Commands on the log of events.

-- name: add_events
-- Locks the head from here to the commit. So the next page is numbered when this one is visible: a reader who has seen
-- a number finds no smaller one later. The statement commits by itself, so a node that stands still holds no lock.
WITH fresh AS (
    INSERT INTO event_writers AS w (writer, sequence, at) VALUES (:writer::bigint, :sequence::bigint, :now::bigint)
    ON CONFLICT (writer) DO UPDATE SET sequence = excluded.sequence, at = excluded.at
    WHERE w.sequence < excluded.sequence
    RETURNING w.writer
),
head AS (
    UPDATE event_head AS h SET number = greatest(h.number + 1, :now::bigint) FROM fresh RETURNING h.number
),
added AS (
    INSERT INTO events (tenant, number, size, events)
    SELECT p.tenant, h.number, p.size, p.events
    FROM head AS h, unnest(:tenants::text[], :sizes::integer[], :texts::text[]) AS p (tenant, size, events)
)
SELECT number FROM head;

-- name: prune_events
WITH old AS (
    SELECT tenant, number FROM events
    WHERE number < greatest(:before::bigint, (
        SELECT max(s.number) + 1 FROM (SELECT number, sum(size) OVER (ORDER BY number DESC) AS total FROM events) AS s
        WHERE s.total > :most_bytes::bigint))
    ORDER BY number LIMIT :limit::bigint
),
noted AS (UPDATE event_prune AS p SET number = o.number FROM (SELECT max(number) AS number FROM old) AS o WHERE o.number > p.number),
forgotten AS (DELETE FROM event_writers WHERE at < :before::bigint)
DELETE FROM events AS e USING old AS o WHERE e.tenant = o.tenant AND e.number = o.number;
