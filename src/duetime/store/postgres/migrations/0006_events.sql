-- The log of events; see domain/event_log.py

-- The one row is the number of the last page. Who adds a page locks it until the commit: pages become visible in order.
CREATE TABLE event_head (
    number bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO event_head (number) VALUES (0);

-- The one row is the highest number that was removed: pages up to it may be incomplete.
CREATE TABLE event_prune (
    number bigint NOT NULL
);
INSERT INTO event_prune (number) VALUES (0);

-- A row is a process that adds pages.
CREATE TABLE event_writers (
    writer   bigint PRIMARY KEY,
    sequence bigint NOT NULL,  -- of its last page
    at       bigint NOT NULL   -- when that was added
) WITH (fillfactor = 50);

-- A row is the events of one tenant in a page; of the tenant '': nothing but a gap for all tenants.
CREATE TABLE events (
    tenant text COLLATE "C" NOT NULL,
    number bigint NOT NULL,   -- of the page
    size   integer NOT NULL,  -- of `events`, in bytes
    events text NOT NULL,     -- JSON
    PRIMARY KEY (tenant, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX events_age ON events (number, size);
