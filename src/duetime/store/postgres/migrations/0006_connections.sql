-- Databases that SQL jobs may use, by the names that people give them.
CREATE TABLE connections (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    url        text NOT NULL,   -- sealed: it holds a password
    shown      text NOT NULL,   -- the same without it
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);
