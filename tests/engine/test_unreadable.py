"""A job definition that can't be read, such as one of a newer version, does not affect other jobs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from duetime.domain.job import JobStatus
from duetime.domain.states import ErrorType, State
from duetime.engine import timer_buffer
from duetime.engine.pages import Pages
from duetime.ports.store import JobQuery
from duetime.store.sqlite.connection import FILE_NAME
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from engine.test_restart import lose
from samples import TENANT, executions_of, spec


def spoil(folder: Path, job_id: str) -> None:
    with closing(apsw.Connection(str(folder / FILE_NAME))) as connection:
        connection.set_busy_timeout(5000)
        connection.execute(
            "UPDATE jobs SET spec = json_insert(spec, '$.moon_phase', 'full') WHERE id = unhex(?, '-')", (job_id,)
        )


@pytest.mark.parametrize("spoiled", range(3))  # in each place of the pages that are read
async def test_an_unreadable_due_job_is_paused_and_the_others_fire(
    stage: Stage, executor: ScriptedExecutor, tmp_path: Path, spoiled: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(timer_buffer, "READ_PAGE", 1)
    monkeypatch.setattr(timer_buffer, "BURST_PAGE", 1)
    await stage.join()
    jobs = sorted([await stage.add_job(spec("every 1m")) for _ in range(3)])
    spoil(tmp_path, jobs[spoiled])
    await stage.pass_time(60, step=60)
    assert {attempt.claim.job_id for attempt in executor.attempts} == {*jobs} - {jobs[spoiled]}
    (skipped,) = [job for job in await stage.store.list_jobs(JobQuery(TENANT)) if job.job_id == jobs[spoiled]]
    assert (skipped.status, skipped.paused_by) == (JobStatus.PAUSED, "duetime")
    assert "moon_phase" in (skipped.pause_reason or "")


@pytest.mark.parametrize("spoiled", range(3))
async def test_an_unreadable_execution_of_an_expired_node_becomes_a_dead_letter_and_the_others_run(
    stage: Stage, executor: ScriptedExecutor, tmp_path: Path, spoiled: int
):
    executor.hold()
    await stage.join()
    jobs = sorted([await stage.add_job(spec("immediate")) for _ in range(3)])
    await stage.tick()
    await lose(stage)
    executor.let_go()
    spoil(tmp_path, jobs[spoiled])
    engine = await stage.join()
    engine.term.reconciler._pages = Pages(1)
    await engine.term.reconciler.run_once()
    await stage.tick()
    (dead,) = await executions_of(stage.store, jobs[spoiled])
    assert (dead.state, dead.dead, dead.error_type) == (State.FAILED, True, ErrorType.INTERNAL_ERROR)
    others = [job_id for job_id in jobs if job_id != jobs[spoiled]]
    assert [(await stage.states(job_id)) for job_id in others] == [[State.COMPLETED]] * 2
