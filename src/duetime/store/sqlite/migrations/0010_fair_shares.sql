-- What waits is claimed by tenant first, so that no tenant waits for what another has waiting.
DROP INDEX executions_waiting;
CREATE INDEX executions_waiting ON executions (tenant, priority DESC, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
DROP INDEX executions_waiting_at;
CREATE INDEX executions_waiting_at ON executions (tenant, priority DESC, endpoint, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0;
-- Which tenants have something to run by now.
CREATE INDEX executions_waiting_of ON executions (tenant, due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
-- When the next may run, of all tenants.
CREATE INDEX executions_waiting_due ON executions (due_at)
    WHERE state IN ('QUEUED', 'RETRYING') AND held = 0 AND endpoint >= 0;
-- By tenant within an instant: what one tenant has due then is passed by in one step.
DROP INDEX timers_due;
CREATE INDEX timers_due ON timers (due_at, tenant) WHERE due_at IS NOT NULL;
