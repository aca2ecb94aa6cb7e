-- Instants are ms since the epoch. Text that is compared or sorted is in the C collation: the same order everywhere.

-- Wide, and written only when a person changes something.
CREATE TABLE jobs (
    id           uuid PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    key          text COLLATE "C",
    name         text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    owner        text COLLATE "C" NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    paused_by    text,
    paused_at    bigint,
    pause_reason text,
    tags         jsonb,          -- a copy out of spec, to filter by; NULL: none
    spec         text NOT NULL   -- JSON, as the person wrote it, defaults left out. Text: a body may hold \u0000
);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (tenant, name, id);

-- Narrow, and written at each fire and finish: when a job is next due, and how it has gone. A finish changes no column
-- that is indexed, and so stays in its page (HOT), which the fillfactor leaves room for.
-- The row is also its job's lock: whoever adds, ends or counts a job's open runs holds it.
CREATE TABLE timers (
    job         uuid PRIMARY KEY,
    due_at      bigint,               -- NULL: no run is left, or paused
    resume_at   bigint,               -- while paused: the instant it would have been due
    busy_ms     bigint NOT NULL DEFAULT 0,
    last_run_at bigint,
    version     integer NOT NULL,
    fired       integer NOT NULL DEFAULT 0,
    runs        integer NOT NULL DEFAULT 0,
    successes   integer NOT NULL DEFAULT 0,
    failures    integer NOT NULL DEFAULT 0,
    shard       smallint NOT NULL,
    recurs      boolean NOT NULL,
    status      text COLLATE "C" NOT NULL,
    last_state  text COLLATE "C",
    tenant      text COLLATE "C" NOT NULL
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.05);
-- By shard first: an owner's range is its own, however many timers of other owners are overdue.
CREATE INDEX timers_due ON timers (shard, due_at, job) WHERE due_at IS NOT NULL;

-- What is decided, a partition a day (see partitions.py). A row is written twice: when it is decided and when it has
-- ended; in between, its state is NULL here and stands in open_runs. No indexed column changes when it ends (HOT),
-- but for `dead` if it died.
CREATE TABLE executions (
    scheduled_at bigint NOT NULL,
    id           uuid NOT NULL,       -- begins with scheduled_at
    job          uuid NOT NULL,
    endpoint     bigint NOT NULL,
    due_at       bigint,
    started_at   bigint,
    ended_at     bigint,
    extra        integer NOT NULL,    -- 0: of the timetable; 1, 2, …: manual runs and retries asked for in that ms
    attempt      integer NOT NULL DEFAULT 0,
    token        integer NOT NULL DEFAULT 0,
    node         integer,
    priority     smallint NOT NULL,
    dead         boolean NOT NULL DEFAULT false,
    state        text COLLATE "C",
    trigger      text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    reason       text,
    PRIMARY KEY (scheduled_at, id),
    -- Invariant 1: at most one execution for a job and an instant of its timetable.
    CONSTRAINT executions_instant UNIQUE (job, scheduled_at, extra)
) PARTITION BY RANGE (scheduled_at);
CREATE INDEX executions_dead ON executions (tenant, scheduled_at, id) WHERE dead;
CREATE TABLE executions_rest PARTITION OF executions DEFAULT WITH (fillfactor = 42);

-- The executions that are not over: as they stand now. Small whatever the history, and of no partition: whether a job
-- has an open run, and what waits, is one probe.
CREATE TABLE open_runs (
    job              uuid NOT NULL,
    execution        uuid NOT NULL,
    scheduled_at     bigint NOT NULL,
    endpoint         bigint NOT NULL,
    due_at           bigint NOT NULL,  -- when it may run (again)
    started_at       bigint,
    extra            integer NOT NULL,
    attempt          integer NOT NULL,
    token            integer NOT NULL,
    node             integer,
    priority         smallint NOT NULL,
    held             boolean NOT NULL DEFAULT false,  -- waits for an earlier execution of its job to end
    cancel_requested boolean NOT NULL DEFAULT false,
    state            text COLLATE "C" NOT NULL,
    trigger          text COLLATE "C" NOT NULL,
    tenant           text COLLATE "C" NOT NULL,
    PRIMARY KEY (job, execution)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX open_runs_waiting ON open_runs (priority, due_at) WHERE state <> 'RUNNING' AND NOT held;
CREATE INDEX open_runs_waiting_at ON open_runs (priority, endpoint, due_at) WHERE state <> 'RUNNING' AND NOT held;
CREATE INDEX open_runs_held ON open_runs (job, scheduled_at, extra) WHERE held;
-- (The node is named so that this index is no answer to a question for a state alone: without figures, it looks small.)
CREATE INDEX open_runs_running ON open_runs (node) WHERE state = 'RUNNING' AND node IS NOT NULL;
CREATE INDEX open_runs_to_stop ON open_runs (node) WHERE cancel_requested;

CREATE TABLE attempts (
    scheduled_at  bigint NOT NULL,    -- of the execution
    execution     uuid NOT NULL,
    started_at    bigint,
    ended_at      bigint NOT NULL,
    attempt       integer NOT NULL,
    node          integer,
    http_status   integer,
    error_type    text,
    error_message text,
    response      text,
    PRIMARY KEY (scheduled_at, execution, attempt)
) PARTITION BY RANGE (scheduled_at);
CREATE TABLE attempts_rest PARTITION OF attempts DEFAULT;

-- The ledger of instants that were decided against in spans.
CREATE TABLE skips (
    job        uuid NOT NULL,
    first_at   bigint NOT NULL,
    until_at   bigint NOT NULL,
    decided_at bigint NOT NULL,
    count      bigint,                -- NULL: too many to count
    tenant     text COLLATE "C" NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (job, first_at)
);
CREATE INDEX skips_age ON skips (until_at);

-- Totals: the sum over `slot`, of which each writer has its own, so that none waits for another. By the day that an
-- execution is scheduled for (0: of jobs), so that a day that is dropped takes its numbers with it.
CREATE TABLE counters (
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    day    integer NOT NULL,
    slot   smallint NOT NULL,
    value  bigint NOT NULL,
    PRIMARY KEY (tenant, name, day, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE idempotency_keys (
    tenant      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    response    text NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- One row for each start of a process. A node that is void (ended_at is set) may write nothing.
CREATE TABLE nodes (
    id         integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name       text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint
);
CREATE INDEX nodes_alive ON nodes (name) WHERE ended_at IS NULL;

-- Who owns a shard: only its latest owner may fire its timers.
CREATE TABLE shard_epochs (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL,
    node  integer NOT NULL
) WITH (fillfactor = 50);

-- What each writer committed last: when a connection breaks during COMMIT, the next one asks here.
CREATE TABLE commits (
    writer uuid PRIMARY KEY,
    batch  bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
