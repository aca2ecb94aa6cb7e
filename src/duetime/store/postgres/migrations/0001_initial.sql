-- The schema of a PostgreSQL database. Instants are milliseconds since the epoch. Text that is compared or sorted has
-- the collation C: its order is the same on every server. In timers, executions, open_runs and attempts the columns of
-- fixed width come first, the widest before the others: rows need little padding.


-- Jobs

-- A row is a job as a person defined it. Rows are wide, and change only when a person changes the job.
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
    size         bigint NOT NULL DEFAULT 0,  -- bytes that the job counts for; see domain/capacity.py
    tags         jsonb,                      -- a copy out of `spec`, to filter by; NULL: none
    spec         text NOT NULL               -- JSON, as the person wrote it, without defaults. Text: it may hold \u0000
);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_name ON jobs (tenant, name, id);
-- Without identity, all jobs belong to the user `local` of the tenant `default`: these indexes leave them out.
CREATE INDEX jobs_tenant ON jobs (tenant, id) WHERE tenant <> 'default';
CREATE INDEX jobs_owner ON jobs (tenant, owner, id) WHERE owner <> 'local';

-- A row is the changing part of a job: when it is next due, and how many executions it had. Rows are narrow, and change
-- with each fire and each finish. A finish changes no indexed column, so the new version of the row stays in its page
-- (HOT); the fillfactor leaves room for it.
-- The row is also the lock of its job: a transaction that adds, ends or counts open executions of the job holds it.
CREATE TABLE timers (
    job         uuid PRIMARY KEY,
    due_at      bigint,               -- NULL: no execution is left, or the job is paused
    resume_at   bigint,               -- while the job is paused: the instant at which it would be due
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
-- By shard first: an owner reads only its own range, even if other owners have many overdue timers. By tenant within an
-- instant: a read skips all timers of one tenant and instant in one step.
CREATE INDEX timers_due ON timers (shard, due_at, tenant, job) WHERE due_at IS NOT NULL;

-- A row is one job that another job waits for. The key may be of a job that does not exist yet. A transaction that
-- reads or changes the rows of a job holds its timer.
CREATE TABLE chains (
    job     uuid NOT NULL,                   -- the job that waits
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,       -- of the job that it waits for
    ends    text COLLATE "C" NOT NULL,       -- the ends that count: success, failure, any
    is_done boolean NOT NULL DEFAULT false,  -- the latest end, after `job` last started, is one of them
    PRIMARY KEY (job, key)
) WITH (fillfactor = 75);
CREATE INDEX chains_awaited ON chains (tenant, key);


-- Executions

-- A row is one execution of a job, in the partition of its day (see partitions.py). A row is written twice: when the
-- execution is decided, and when it has ended. Between the two its state is NULL here; `open_runs` has it. The end
-- changes no indexed column (HOT), except `dead` if the execution is dead.
CREATE TABLE executions (
    scheduled_at bigint NOT NULL,
    id           uuid NOT NULL,       -- begins with scheduled_at
    job          uuid NOT NULL,
    endpoint     bigint NOT NULL,
    due_at       bigint,
    started_at   bigint,
    ended_at     bigint,
    extra        integer NOT NULL,    -- 0: scheduled; 1, 2, …: manual runs and redrives of that ms
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
    -- Invariant 1: a job has at most one scheduled execution for an instant.
    CONSTRAINT executions_instant UNIQUE (job, scheduled_at, extra)
) PARTITION BY RANGE (scheduled_at);
CREATE INDEX executions_dead ON executions (tenant, scheduled_at, id) WHERE dead;
CREATE INDEX executions_tenant ON executions (tenant, scheduled_at, id) WHERE tenant <> 'default';
CREATE TABLE executions_rest PARTITION OF executions DEFAULT WITH (fillfactor = 42);

-- A row is the current state of an execution that has not ended. The table is small, however long the history is, and
-- has no partitions: whether a job has an open execution is one probe of an index.
CREATE TABLE open_runs (
    job              uuid NOT NULL,
    execution        uuid NOT NULL,
    scheduled_at     bigint NOT NULL,
    endpoint         bigint NOT NULL,  -- negative: of a function, which only a worker runs
    due_at           bigint NOT NULL,  -- when its next attempt may start
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
CREATE INDEX open_runs_held ON open_runs (job, scheduled_at, extra) WHERE held;
-- (The condition on `node` keeps the planner from using this index for a query by state alone: without statistics the
-- index looks small.)
CREATE INDEX open_runs_running ON open_runs (node) WHERE state = 'RUNNING' AND node IS NOT NULL;
CREATE INDEX open_runs_to_stop ON open_runs (node) WHERE cancel_requested;
-- What nodes claim: by tenant first, so that the backlog of one tenant does not delay another. Executions of functions
-- wait for workers; the claim of a node does not read them.
CREATE INDEX open_runs_waiting ON open_runs (tenant, priority, due_at)
    WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0;
-- What nodes claim for some endpoints, and workers for their functions.
CREATE INDEX open_runs_waiting_at ON open_runs (tenant, priority, endpoint, due_at)
    WHERE state <> 'RUNNING' AND NOT held;
-- The next two are not for claims: an index without the priority reads everything that waits, and on a new database the
-- planner could choose one. A claim does not say `attempt >= 0`, which is always true, so the planner can't.
-- Which tenants have executions that are due.
CREATE INDEX open_runs_waiting_of ON open_runs (tenant, due_at)
    WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0;
-- When the next execution of any tenant is due.
CREATE INDEX open_runs_waiting_due ON open_runs (due_at)
    WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0;

-- A row is one ended attempt of an execution, in the partition of the execution's day.
CREATE TABLE attempts (
    scheduled_at  bigint NOT NULL,    -- of the execution
    execution     uuid NOT NULL,
    started_at    bigint,
    ended_at      bigint NOT NULL,
    attempt       integer NOT NULL,
    node          integer,
    http_status   integer,
    exit_code     integer,
    error_type    text,
    error_message text,
    response      text,
    PRIMARY KEY (scheduled_at, execution, attempt)
) PARTITION BY RANGE (scheduled_at);
CREATE TABLE attempts_rest PARTITION OF attempts DEFAULT;

-- A row is the latest progress that an execution has reported.
CREATE TABLE progress (
    scheduled_at bigint NOT NULL,  -- of the execution
    execution    uuid NOT NULL,
    value        text NOT NULL,    -- JSON
    PRIMARY KEY (scheduled_at, execution)
);

-- A row is a span of scheduled instants of a job that have no executions, and the reason.
CREATE TABLE skips (
    job        uuid NOT NULL,
    first_at   bigint NOT NULL,
    until_at   bigint NOT NULL,
    decided_at bigint NOT NULL,
    count      bigint,             -- NULL: too many to count
    tenant     text COLLATE "C" NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (job, first_at)
);
CREATE INDEX skips_age ON skips (until_at);


-- Nodes and workers

-- A row is one start of a process. A node whose `ended_at` is set is fenced: the store refuses its writes.
CREATE TABLE nodes (
    id         integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name       text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint
);
CREATE INDEX nodes_alive ON nodes (name) WHERE ended_at IS NULL;
CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;

-- A row is the latest owner of a shard: only this node may fire the timers of the shard.
CREATE TABLE shard_epochs (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL,
    node  integer NOT NULL
) WITH (fillfactor = 50);

-- A row is a worker that has joined and has not ended. It is also a row of `nodes`.
CREATE TABLE workers (
    node       integer PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    functions  text NOT NULL,             -- JSON
    slots      integer NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    beats      bigint NOT NULL DEFAULT 0  -- heartbeats so far: a watcher waits for a change, and compares no clocks
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- A row is the last batch that a writer has committed. If a connection breaks during COMMIT, the writer asks here
-- whether the batch was committed.
CREATE TABLE commits (
    writer uuid PRIMARY KEY,
    batch  bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);


-- Targets: what executions call, and what is called when they end

-- A row is a URL that has failed after its last success; see domain/breaker.py. A circuit that closes stays for a
-- while, with no failures, so that nodes read that it has closed.
CREATE TABLE circuits (
    id            bigint PRIMARY KEY,  -- a hash of the tenant and the URL
    tenant        text COLLATE "C" NOT NULL,
    url           text NOT NULL,       -- without its query
    failures      integer NOT NULL,    -- consecutive executions that failed for good
    opened_at     bigint,
    next_probe_at bigint,
    probe         text,                -- the execution that tries the URL
    touched_at    bigint NOT NULL,
    changed_in    xid8 NOT NULL DEFAULT pg_current_xact_id()  -- its last change; nodes read the circuits from one on
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX circuits_changed ON circuits (changed_in);
CREATE INDEX circuits_latest ON circuits ((opened_at IS NULL), touched_at DESC, id) WHERE failures > 0;
CREATE INDEX circuits_touched ON circuits (touched_at);
CREATE INDEX circuits_of ON circuits (tenant, (opened_at IS NULL), touched_at DESC, id);

-- A row is a database that SQL jobs of a tenant may use, by its name.
CREATE TABLE connections (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    url        text NOT NULL,  -- encrypted: it has a password
    shown      text NOT NULL,  -- the URL without the password
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- A row is a URL that is notified of events of a tenant.
CREATE TABLE subscriptions (
    id         uuid PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    url        text NOT NULL,
    events     text NOT NULL,  -- JSON
    created_at bigint NOT NULL,
    created_by text NOT NULL
);

-- A row is the signing key of a tenant that has rotated it: the version that signs, and until when the version before
-- it signs too.
CREATE TABLE signing_keys (
    tenant         text COLLATE "C" PRIMARY KEY,
    version        bigint NOT NULL,
    previous_until bigint NOT NULL,
    rotated_at     bigint NOT NULL,
    rotated_by     text NOT NULL
);
CREATE INDEX signing_keys_rotated ON signing_keys (rotated_at);


-- Users and tenants

-- A row is an API key.
CREATE TABLE api_keys (
    id           text COLLATE "C" PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    role         text NOT NULL,
    tier         text NOT NULL,
    scopes       text NOT NULL,  -- JSON
    secret_hash  text NOT NULL,  -- SHA-256, hex
    created_at   bigint NOT NULL,
    created_by   text NOT NULL,
    expires_at   bigint,
    last_used_at bigint,
    revoked_at   bigint
);
CREATE INDEX api_keys_of ON api_keys (tenant, created_at, id);
-- By the instant at which a key ended: revoked or expired, the earlier of the two.
CREATE INDEX api_keys_over ON api_keys (least(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

-- A row is what a user has used of a rate limit; see domain/limits.py.
CREATE TABLE limits (
    tenant  text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    full_at bigint NOT NULL,  -- the instant, in microseconds, at which the bucket is full again
    PRIMARY KEY (tenant, user_id, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- A row is a part of a total of a tenant: its jobs, their bytes, its executions by state. The tenant '' has the totals
-- of jobs and bytes of all tenants. A total is the sum over its days and slots: each writer has its own slot, so that
-- no writer waits for another.
CREATE TABLE counters (
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    day    integer NOT NULL,  -- 0: of jobs; else the day of the executions, and the row is removed with that day
    slot   smallint NOT NULL,
    value  bigint NOT NULL,
    PRIMARY KEY (tenant, name, day, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO counters (tenant, name, day, slot, value) VALUES ('', 'jobs', 0, 0, 0), ('', 'bytes', 0, 0, 0);

-- A row is the response to a request that named an idempotency key.
CREATE TABLE idempotency_keys (
    tenant      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    response    text NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);


-- The audit; see domain/audit.py. Each writer has a chain of its own (the number of its slot), so that no writer waits
-- for another. Chain -1 is the chain that was promoted from SQLite.

-- A row is one change. Rows are only appended, and pruned from the oldest on.
CREATE TABLE audit (
    number   bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
    link     bigint NOT NULL,
    chain    smallint NOT NULL,
    position integer NOT NULL,           -- in its page
    tenant   text COLLATE "C" NOT NULL,  -- a copy out of `entry`, to search by
    resource text COLLATE "C" NOT NULL,  -- a copy out of `entry`, to search by
    entry    text NOT NULL               -- JSON: the text that is hashed
);
CREATE INDEX audit_resource ON audit (tenant, resource, number);
CREATE INDEX audit_page ON audit (chain, link, position);

-- A row is one commit of a writer: the hash of the link before it and of the entries of the commit.
CREATE TABLE audit_links (
    chain smallint NOT NULL,
    link  bigint NOT NULL,
    hash  bytea NOT NULL,
    PRIMARY KEY (chain, link)
);

-- A row is the last link of a chain.
CREATE TABLE audit_heads (
    chain smallint PRIMARY KEY,
    link  bigint NOT NULL,
    hash  bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- A row is the last link that was pruned from a chain: verification begins after it.
CREATE TABLE audit_checkpoints (
    chain smallint PRIMARY KEY,
    link  bigint NOT NULL,
    hash  bytea NOT NULL,
    at    bigint NOT NULL  -- when it was pruned
);
