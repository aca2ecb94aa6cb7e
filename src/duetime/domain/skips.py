"""Which instants a page of fires has skipped, and why: for statistics, metrics and events. Pure."""

from __future__ import annotations

from duetime.domain.commands.executions import Fire, Fired
from duetime.domain.plan import Skipped


def skips_of(command: Fire, fired: Fired) -> list[Skipped]:
    """Returns the spans that a Fire has skipped: missed instants, and instants that overlapped an open execution."""
    spans = [skip for skip in command.skips if skip.job_id not in fired.stale_jobs]
    if fired.skipped:
        spans += [
            Skipped(one.job_id, one.tenant, one.scheduled_at, one.scheduled_at + 1, 1, "overlap")
            for one in command.executions
            if one.execution_id in fired.skipped
        ]
    return spans
