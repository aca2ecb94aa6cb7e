-- A row is a place that notices of alerts of a tenant are sent to, by its name.
CREATE TABLE alert_channels (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    kind       text NOT NULL,  -- webhook or apprise
    url        text NOT NULL,  -- encrypted: it has tokens
    shown      text NOT NULL,  -- the URL without them
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);
