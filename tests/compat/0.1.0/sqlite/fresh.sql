INSERT INTO circuit_changes (last) VALUES (0);
INSERT INTO counters (tenant, name, value) VALUES ('', 'bytes', 0);
INSERT INTO counters (tenant, name, value) VALUES ('', 'jobs', 0);
DELETE FROM sqlite_sequence;
