-- Who is told of what happens in a tenant.
CREATE TABLE subscriptions (
    id         uuid PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    url        text NOT NULL,
    events     text NOT NULL,   -- JSON
    created_at bigint NOT NULL,
    created_by text NOT NULL
);
