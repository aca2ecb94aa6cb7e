-- The bytes of each tenant's jobs, counted as their number is: tenants have shares of both.
INSERT INTO counters (tenant, name, value) SELECT tenant, 'bytes', sum(size) FROM jobs GROUP BY tenant;
