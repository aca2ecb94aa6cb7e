-- A claim for a tenant and a priority must not be answered by an index without the priority: on a new database the
-- planner takes one for the other, and walks over all that waits. `attempt >= 0` is always so; a claim does not name it.
DROP INDEX open_runs_waiting_of;
CREATE INDEX open_runs_waiting_of ON open_runs (tenant, due_at)
    WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0;
DROP INDEX open_runs_waiting_due;
CREATE INDEX open_runs_waiting_due ON open_runs (due_at)
    WHERE state <> 'RUNNING' AND NOT held AND endpoint >= 0 AND attempt >= 0;
