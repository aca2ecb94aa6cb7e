"""The script executor: one attempt runs one program and its child processes, and none of them outlives the attempt.

A script job is code execution: a user who may create one has a shell on the nodes that run it, as the user that scripts
run as. Scripts have resource limits and can't outlive their attempt, but they are not sandboxed. That is why an
operator has to allow them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from duetime.domain.execution import ErrorType
from duetime.domain.payloads import Script
from duetime.executors.script.bandwidth import Bandwidth
from duetime.executors.script.link import ForkServerLink, ForkServerLost
from duetime.executors.script.outcome import outcome_of, timeout_of
from duetime.executors.script.request import ScriptLimits, request_of
from duetime.executors.script.run import ScriptRun, SupervisorLost
from duetime.executors.script.wire import Refused
from duetime.executors.uncancelled import uncancelled
from duetime.ports.executor import Attempt, NotSent, Outcome


class ScriptExecutor:
    """Runs `script` jobs if they are `allowed` on this node. The first attempt starts the fork server."""

    def __init__(self, limits: ScriptLimits, *, allowed: bool) -> None:
        self._limits = limits
        self._allowed = allowed
        self.link = ForkServerLink()
        self._bandwidth = Bandwidth()

    async def start(self) -> None:
        """Does nothing: a node that runs no scripts has no fork server."""

    async def stop(self) -> None:
        await self.link.stop()

    async def execute(self, attempt: Attempt[Script]) -> Outcome:
        payload = attempt.payload
        if not self._allowed:
            message = "Scripts are not allowed on this node; its operator has to set ALLOW_SCRIPTS. Nothing was run."
            return Outcome(ErrorType.BLOCKED_TARGET, message)
        if not (payload.argv or payload.script):
            return Outcome(ErrorType.INTERNAL_ERROR, "The job has neither argv nor a script. Nothing was run.")
        deadline = asyncio.get_running_loop().time() + attempt.timeout_seconds
        try:
            async with ScriptRun(attempt.log, self._bandwidth, attempt.claim.tenant) as run:
                return await self._attempt(run, attempt, deadline)
        except SupervisorLost:
            message = "The process that watched over the script was killed, and the script with it."
        except (ForkServerLost, OSError) as problem:
            message = f"The script was not started: {problem}."
        return Outcome(ErrorType.INTERNAL_ERROR, message)

    async def _attempt(self, run: ScriptRun, attempt: Attempt[Script], deadline: float) -> Outcome:
        try:
            async with asyncio.timeout_at(deadline):
                refused = await self._prepare(run, attempt)
        except TimeoutError:
            return timeout_of(None, attempt.timeout_seconds, None)
        if refused is not None:
            return outcome_of(refused, self._limits, None)
        if not attempt.may_send():
            raise NotSent
        run.go()
        return await self._see_through(run, attempt, deadline)

    async def _prepare(self, run: ScriptRun, attempt: Attempt[Script]) -> Refused | None:
        request = request_of(attempt, self._limits)
        with suppress(ForkServerLost):
            return await run.prepare(self.link, request)
        return await run.prepare(self.link, request)  # with a new fork server; no script has been started yet

    async def _see_through(self, run: ScriptRun, attempt: Attempt[Script], deadline: float) -> Outcome:
        is_late = False
        try:
            async with asyncio.timeout_at(deadline):
                end = await run.ended()
        except TimeoutError:
            is_late = True
            end = await uncancelled(run.end())
        except asyncio.CancelledError:
            with suppress(SupervisorLost):
                await uncancelled(run.end())
            raise
        await run.folder_removed()
        run.stdout.close()
        if is_late:
            return timeout_of(end, attempt.timeout_seconds, run.stdout.tail())
        return outcome_of(end, self._limits, run.stdout.tail())
