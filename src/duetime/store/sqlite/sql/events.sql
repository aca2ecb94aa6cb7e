-- Commands on the log of events.

-- name: add_event_writer
-- Returns no row if the page was added before. Differs from the PostgreSQL version in that writer, number and rows have
-- statements of their own; PostgreSQL does all in one, which commits by itself.
INSERT INTO event_writers AS w (writer, sequence, at) VALUES (:writer, :sequence, :now)
ON CONFLICT DO UPDATE SET sequence = excluded.sequence, at = excluded.at WHERE w.sequence < excluded.sequence
RETURNING 1;

-- name: next_event_page
UPDATE event_head SET number = max(number + 1, :now) RETURNING number;

-- name: add_events
INSERT INTO events (tenant, number, size, events)
SELECT value ->> 0, :number, value ->> 1, value ->> 2 FROM json_each(:rows);

-- name: list_old_events
-- Differs from the PostgreSQL version in that rows are found, removed and noted by statements of their own.
SELECT '[' || group_concat(id) || ']', max(number) FROM (
    SELECT rowid AS id, number FROM events
    WHERE number < :before OR number <= (
        SELECT max(number) FROM (SELECT number, sum(size) OVER (ORDER BY number DESC) AS total FROM events)
        WHERE total > :most_bytes)
    ORDER BY number LIMIT :limit);

-- name: prune_events
DELETE FROM events WHERE rowid IN (SELECT value FROM json_each(:ids));

-- name: note_event_prune
UPDATE event_prune SET number = max(number, :number);

-- name: prune_event_writers
DELETE FROM event_writers WHERE at < :before;
