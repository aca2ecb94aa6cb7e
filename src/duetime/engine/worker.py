"""The worker: carries out one attempt of a claimed run, and hands what came of it to the recorder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from duetime.domain.execution import Outcome, Run, conclude, lapse, pauses_job
from duetime.domain.states import ErrorType
from duetime.engine.recorder import Recorder
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor, NotSent, Task, always
from duetime.telemetry.crash import crash_point

log = structlog.get_logger()

CANCELLED = Outcome(error_type=ErrorType.CANCELLED, error_message="cancelled on request")


class Worker:
    def __init__(
        self, executor: Executor, recorder: Recorder, clock: Clock, chance: Callable[[], float],
        is_cancelled: Callable[[str], bool], may_send: Callable[[], bool] = always,
    ) -> None:  # fmt: skip
        self._executor = executor
        self._recorder = recorder
        self._clock = clock
        self._chance = chance
        self._is_cancelled = is_cancelled
        self._may_send = may_send

    async def attempt(self, run: Run) -> None:
        """One attempt, within its deadline. Every end of it is recorded; a shutdown gives the run back.

        Raises NotSent, and has recorded nothing, if the lease was in doubt when the first byte was to leave.
        """
        started_at = self._clock.now()
        crash_point("before_attempt")
        try:
            outcome = await self._execute(run)
        except asyncio.CancelledError:
            if not self._is_cancelled(run.execution_id):
                # Nobody asked for this run to end: the node is stopping. It goes on elsewhere, the attempt counted.
                self._recorder.add(run, lapse(run, self._clock.now()))
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            outcome = CANCELLED
        crash_point("after_attempt")
        ended_at = self._clock.now()
        self._recorder.add(run, conclude(run, outcome, started_at, ended_at, self._chance()), pauses_job(outcome))

    def drop(self, run: Run) -> None:
        """A claimed run that was cancelled before it began: nothing is sent."""
        now = self._clock.now()
        self._recorder.add(run, conclude(run, CANCELLED, now, now, 0.0))

    async def _execute(self, run: Run) -> Outcome:
        if run.cancel_requested or self._is_cancelled(run.execution_id):
            return CANCELLED
        spec = run.spec
        task = Task(
            run.execution_id, run.job_id, run.tenant, run.scheduled_at, run.attempt, run.token, run.trigger,
            spec.timeout_seconds, spec.payload, self._may_send,
        )  # fmt: skip
        try:
            return await self._executor.execute(task)
        except NotSent:
            raise
        except Exception as error:
            log.error("an executor failed", execution_id=run.execution_id, exc_info=True)
            return Outcome(ErrorType.INTERNAL_ERROR, f"the executor failed: {type(error).__name__}: {error}")
