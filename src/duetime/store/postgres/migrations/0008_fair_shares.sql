-- What waits is claimed by tenant first, so that no tenant waits for what another has waiting.
DROP INDEX open_runs_waiting;
CREATE INDEX open_runs_waiting ON open_runs (tenant, priority, due_at) WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0;
DROP INDEX open_runs_waiting_at;
CREATE INDEX open_runs_waiting_at ON open_runs (tenant, priority, endpoint, due_at) WHERE state <> 'RUNNING' AND NOT held;
-- Which tenants have something to run by now.
CREATE INDEX open_runs_waiting_of ON open_runs (tenant, due_at) WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0;
-- When the next may run, of all tenants.
CREATE INDEX open_runs_waiting_due ON open_runs (due_at) WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0;
-- By tenant within an instant: what one tenant has due then is passed by in one step.
DROP INDEX timers_due;
CREATE INDEX timers_due ON timers (shard, due_at, tenant, job) WHERE due_at IS NOT NULL;
