-- Alerts; see domain/alerts.py

-- A row is an alert rule of a tenant. Defaults that no rule replaces have no row.
CREATE TABLE alert_rules (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL,
    changed_by text NOT NULL,
    rule       text NOT NULL,  -- JSON
    PRIMARY KEY (tenant, name)
);

-- A row is an alert: an open one, or one of the latest that are over.
CREATE TABLE alerts (
    id      text COLLATE "C" PRIMARY KEY,
    tenant  text COLLATE "C" NOT NULL,
    rule    text NOT NULL,     -- its name
    is_open smallint NOT NULL,  -- 1: it is not over, or that it is over is still to be told; else 0
    at      bigint NOT NULL,  -- when it resolved, or its first bad reading
    alert   text NOT NULL      -- JSON
);
CREATE INDEX alerts_open ON alerts (tenant, id) WHERE is_open = 1;
CREATE INDEX alerts_over ON alerts (tenant, at, id) WHERE is_open = 0;

-- A row is a silence: for its time, no notice is sent of alerts that it covers.
CREATE TABLE silences (
    id         text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    rule       text NOT NULL,  -- empty: any
    subject    text NOT NULL,  -- empty: any
    begins_at  bigint NOT NULL,
    ends_at    bigint NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    reason     text NOT NULL
);
CREATE INDEX silences_of ON silences (tenant, ends_at);

-- The one row is the owner of the alerts. Its epoch grows with each owner, so that an earlier owner writes nothing.
CREATE TABLE alert_owner (
    epoch bigint NOT NULL,
    node  integer NOT NULL
);
INSERT INTO alert_owner (epoch, node) VALUES (0, 0);
