"""The runner holds a worker's calls. It begins them as slots come free, and stops those that must stop.

It does not poll for work and sends nothing: ends go to the outbox. Everything runs on the worker's event loop, except
`_take`, which slots call from their threads.
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
GRACE_SECONDS = 2.0  # how long a function that must stop may take before it is reported as if it had ended
LONG_SECONDS = 0.5  # no prefetch while a call runs longer than this: prefetched calls might wait behind it
RETURN_SECONDS = 1.0  # a prefetched call that waits this long is given back

MakePool = Callable[[Take, PoolEvents, Now], Pool]

log = structlog.get_logger()


class Runner:
    def __init__(self, registry: Registry, slots: int, make_pool: MakePool, outbox: Outbox, now: Now) -> None:
        self._registry = registry
        self._outbox = outbox
        self._now = now
        self._free = slots
        self._pool = make_pool(self._take, self, now)
        self._calls: dict[str, Call] = {}  # by execution: waiting or running, and not abandoned
        self._waiting: deque[Call] = deque()  # for the pool
        self._waiting_async: deque[Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_settling = False
        self._busy_seconds = 0.0
        self._busy_since = 0.0
        self.trusted_until = 0.0  # end of the lease on the monotonic clock: no call begins after it
        self.has_long = False
        self.ended = 0  # how many calls have ended so far
        self.changed = asyncio.Event()  # set when a call has ended since the last clear

    async def start(self) -> None:
        await self._pool.start()

    def held(self) -> int:
        return len(self._calls)

    def busy_seconds(self) -> float:
        """Returns the total time in which the runner has held at least one call."""
        return self._busy_seconds + (monotonic() - self._busy_since if self._calls else 0.0)

    def running(self) -> list[WorkClaim]:
        """Returns the claims it holds. A claim that is missing from the next report goes to other workers."""
        return [call.assignment.claim for call in self._calls.values()]

    def room(self) -> int:
        """Returns how many slots are free. A function that was given up but still runs keeps its slot."""
        return self._free - len(self._waiting) - len(self._waiting_async)

    def trust(self, until: float) -> None:
        """The lease was renewed until this time."""
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
                    continue  # assigned twice, because a response was lost
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
        """Returns the next call that is not over. None while the lease is in doubt: another worker may have it."""
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
        """Runs once for all calls that ended in one iteration of the event loop."""
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
            self._finish(call, end_of(call, verdict, "", self._now()))  # the task checks `is_over` first
            self._settle_soon()
        elif call.task is not None:
            call.task.cancel()
        elif self._pool.stop_call(call):
            call.give_up_at += GRACE_SECONDS  # by then the process was killed
        elif verdict == "timeout":
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        """Report the call although its function still runs. It keeps its slot until the function returns."""
        log.warning(
            "a function still runs after it should have stopped, and keeps its slot until it returns",
            function=call.function.name, execution=call.assignment.execution_id, reported=call.verdict,
        )  # fmt: skip
        self._finish(call, end_of(call, "cancelled", "", self._now()))
        self._settle_soon()

    def _withdraw(self, call: Call) -> bool:
        """Returns True if the call was still waiting, and will not begin now. False if a thread has just taken it."""
        waiting = self._waiting_async if call.function.is_async else self._waiting
        try:
            waiting.remove(call)
        except ValueError:
            return False
        return True

    def forget_waiting(self) -> int:
        """Give back all calls that have not begun. Returns how many."""
        waiting = [call for call in self._calls.values() if not call.began_at and self._withdraw(call)]
        for call in waiting:
            self._abandon(call)
            self._outbox.give_back(call.assignment.claim)
        return len(waiting)

    def abandon(self) -> int:
        """Stop all calls without reporting them. Returns how many calls had begun."""
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
        """Abandon all running calls, and end them as far as possible."""
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
