"""The runner: the calls that a worker holds. It begins them as slots come free, and stops those that must stop.

It asks nobody for work and sends nothing: ends go to the outbox. All of it is on the worker's loop, but `_take`, which
slots call from their threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Literal

import structlog

from duetime.domain.work import Assignment, Ended, WorkClaim
from duetime.functions.calls import Call, Now, end_of, perform_async
from duetime.functions.failures import log_failure
from duetime.functions.outbox import Outbox
from duetime.functions.pools import Pool, PoolEvents, Take
from duetime.functions.registry import Function, Registry

SWEEP_SECONDS = 0.05
GRACE_SECONDS = 2.0  # for a function that was told to stop, before it is reported without having ended
LONG_SECONDS = 0.5  # while a call runs for longer than this, nothing is fetched ahead: it might wait behind it
RETURN_SECONDS = 1.0  # what was fetched ahead, and waits for so long, is given back

MakePool = Callable[[Take, PoolEvents, Now], Pool]

log = structlog.get_logger()


class Runner:
    def __init__(self, registry: Registry, slots: int, make_pool: MakePool, outbox: Outbox, now: Now) -> None:
        self._registry = registry
        self._outbox = outbox
        self._now = now
        self._free = slots
        self._pool = make_pool(self._take, self, now)
        self._calls: dict[str, Call] = {}  # by execution: waiting or running, and wanted
        self._waiting: deque[Call] = deque()  # for the pool
        self._waiting_async: deque[Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_settling = False
        self._busy_seconds = 0.0
        self._busy_since = 0.0
        self.trusted_until = 0.0  # of the lease, on the monotonic clock: nothing begins after it
        self.has_long = False
        self.ended = 0  # calls, ever
        self.changed = asyncio.Event()  # something has ended, since it was cleared

    async def start(self) -> None:
        await self._pool.start()

    def held(self) -> int:
        return len(self._calls)

    def busy_seconds(self) -> float:
        """For how long, of all its time, it has held a call."""
        return self._busy_seconds + (monotonic() - self._busy_since if self._calls else 0.0)

    def running(self) -> list[WorkClaim]:
        """The claims it holds. What it held and is not among them any more goes to other workers."""
        return [call.assignment.claim for call in self._calls.values()]

    def room(self) -> int:
        """Slots that nothing is held for. A function that was given up but goes on has its slot still."""
        return self._free - len(self._waiting) - len(self._waiting_async)

    def trust(self, until: float) -> None:
        """The lease was renewed."""
        self.trusted_until = until
        if self._waiting or self._waiting_async:
            self._begin()

    def offer(self, assignments: Iterable[Assignment]) -> None:
        moment = monotonic()
        if not self._calls:
            self._busy_since = moment
        for assignment in assignments:
            known = self._calls.get(assignment.execution_id)
            if known is not None:
                if known.assignment.token == assignment.token:
                    continue  # given out twice, because an answer was lost
                self._abandon(known)
            function = self._registry.get(assignment.function)
            call = Call(assignment, function or Function(assignment.function, _nothing), self._outbox.note)
            call.offered_at = moment
            self._calls[assignment.execution_id] = call
            if function is None:
                message = f"this worker has no function '{assignment.function}'; start it with the app that has it"
                self._finish(call, end_of(call, "function_error", message, self._now()))
            elif function.is_async:
                self._waiting_async.append(call)
            else:
                self._waiting.append(call)
        self._begin()
        self._settle_soon()
        if self._sweeper is None and self._calls:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    # Beginning and ending

    def _take(self) -> Call | None:
        return self._next(self._waiting)

    def _next(self, waiting: deque[Call]) -> Call | None:
        """The next that is still wanted. None while the lease is in doubt: it may be another worker's by now."""
        if monotonic() > self.trusted_until:
            return None
        try:
            while (call := waiting.popleft()).is_over:
                continue
        except IndexError:
            return None
        return call

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._free and (call := self._next(self._waiting_async)) is not None:
            self._free -= 1
            call.task = loop.create_task(self._carry_out(call))
            self._tasks.add(call.task)
        if self._free and self._waiting and monotonic() <= self.trusted_until:
            self._free -= self._pool.open(self._free, len(self._waiting))

    async def _carry_out(self, call: Call) -> None:
        if not call.is_over:
            call.began_at = monotonic()
            self._finish(call, await perform_async(call, self._now))
        assert call.task is not None
        self._tasks.discard(call.task)
        self._free += 1
        self._settle_soon()

    def on_ends(self, ends: list[tuple[Call, Ended]]) -> None:
        for call, ended in ends:
            self._finish(call, ended)
        self._settle_soon()

    def on_closed(self, slots: int) -> None:
        self._free += slots
        self._settle_soon()

    def on_ready(self) -> None:
        self._begin()

    def _finish(self, call: Call, ended: Ended) -> None:
        if call.is_over:
            return
        if call.verdict is not None:
            ended = end_of(call, call.verdict, _sentence(call), self._now())
        call.is_over = True
        self._let_go(call)
        self._outbox.put(call, ended)
        log_failure(call, ended)
        self.ended += 1

    def _let_go(self, call: Call) -> None:
        del self._calls[call.assignment.execution_id]
        if not self._calls:
            self._busy_seconds += monotonic() - self._busy_since

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        """Once for all that has ended in a turn of the loop."""
        self._is_settling = False
        if self._free and (self._waiting or self._waiting_async):
            self._begin()
        if len(self._outbox):
            self._outbox.send_soon(at_once=not self._calls)
        self.changed.set()

    # Stopping

    def _sweep(self) -> None:
        self._sweeper = None
        moment = monotonic()
        self.has_long = False
        for call in list(self._calls.values()):
            if call.verdict is not None:
                if moment >= call.give_up_at:
                    self._give_up(call)
            elif call.began_at:
                self.has_long = self.has_long or moment - call.began_at > LONG_SECONDS
                if moment - call.began_at >= call.assignment.timeout_seconds:
                    self._stop(call, "timeout")
            elif moment - call.offered_at >= RETURN_SECONDS and self._withdraw(call):
                self._abandon(call)
                self._outbox.give_back(call.assignment.claim)
                self._settle_soon()
        if self._calls:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def cancel(self, claim: WorkClaim) -> None:
        call = self._calls.get(claim.execution_id)
        if call is not None and call.verdict is None and call.assignment.claim == claim:
            self._stop(call, "cancelled")

    def _stop(self, call: Call, verdict: Literal["timeout", "cancelled"]) -> None:
        call.verdict = verdict
        call.context.cancelled = True
        call.give_up_at = monotonic() + GRACE_SECONDS
        if not call.began_at and (call.task is not None or self._withdraw(call)):
            self._finish(call, end_of(call, verdict, "", self._now()))  # a task's first turn sees that it is over
            self._settle_soon()
        elif call.task is not None:
            call.task.cancel()
        elif self._pool.stop_call(call):
            call.give_up_at += GRACE_SECONDS  # by then it was killed
        elif verdict == "timeout":
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        """Report it without its end. It keeps its slot as long as it runs."""
        log.warning(
            "a function goes on after it was told to stop, and keeps its slot until it returns",
            function=call.function.name, execution=call.assignment.execution_id, reported=call.verdict,
        )  # fmt: skip
        self._finish(call, end_of(call, "cancelled", "", self._now()))
        self._settle_soon()

    def _withdraw(self, call: Call) -> bool:
        """Whether it was still waiting, and will not begin now. A thread may just have taken it."""
        waiting = self._waiting_async if call.function.is_async else self._waiting
        try:
            waiting.remove(call)
        except ValueError:
            return False
        return True

    def forget_waiting(self) -> int:
        """Begin nothing more; answers how many never began."""
        waiting = [call for call in self._calls.values() if not call.began_at and self._withdraw(call)]
        for call in waiting:
            self._abandon(call)
            self._outbox.give_back(call.assignment.claim)
        return len(waiting)

    def abandon(self) -> int:
        """Stop everything, and report nothing of it; answers how many calls that were."""
        self.forget_waiting()
        calls = list(self._calls.values())
        for call in calls:
            self._abandon(call)
        return len(calls)

    def _abandon(self, call: Call) -> None:
        call.is_over = True
        call.context.cancelled = True
        self._let_go(call)
        if call.began_at and call.task is not None:
            call.task.cancel()
        elif call.began_at:
            self._pool.stop_call(call)

    async def stop(self) -> None:
        """Whatever still runs is abandoned, and ended as far as it can be."""
        self.abandon()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        await self._pool.stop()


def _nothing() -> None:
    return


def _sentence(call: Call) -> str:
    if call.verdict == "cancelled":
        return "it was cancelled" if call.began_at else "it was cancelled before it began"
    return f"it ran longer than its timeout of {call.assignment.timeout_seconds:g} seconds"
