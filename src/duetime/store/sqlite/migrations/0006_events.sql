-- The log of events; see domain/event_log.py

-- The one row is the number of the last page.
CREATE TABLE event_head (
    number INTEGER NOT NULL
);
INSERT INTO event_head (number) VALUES (0);

-- The one row is the highest number that was removed: pages up to it may be incomplete.
CREATE TABLE event_prune (
    number INTEGER NOT NULL
);
INSERT INTO event_prune (number) VALUES (0);

-- A row is a process that adds pages.
CREATE TABLE event_writers (
    writer   INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,  -- of its last page
    at       INTEGER NOT NULL   -- when that was added
);

-- A row is the events of one tenant in a page; of the tenant '': nothing but a gap for all tenants.
CREATE TABLE events (
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL,  -- of the page
    size   INTEGER NOT NULL,  -- of `events`, in bytes
    events TEXT NOT NULL      -- JSON
);
CREATE UNIQUE INDEX events_place ON events (tenant, number);
CREATE INDEX events_age ON events (number, size);
