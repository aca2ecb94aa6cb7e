-- The bytes of each tenant's jobs, counted as their number is: tenants have shares of both.
INSERT INTO counters (tenant, name, day, slot, value) SELECT tenant, 'bytes', 0, 0, sum(size) FROM jobs GROUP BY tenant;
