-- Targets that have failed since they last succeeded; see domain/breaker.py.
CREATE TABLE circuits (
    id            bigint PRIMARY KEY,          -- of the tenant and the URL
    tenant        text COLLATE "C" NOT NULL,
    url           text NOT NULL,               -- without its query
    failures      integer NOT NULL,            -- executions in a row that failed for good
    opened_at     bigint,
    next_probe_at bigint,
    probe         text,                        -- the execution that tries it
    touched_at    bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX circuits_of ON circuits (tenant);
