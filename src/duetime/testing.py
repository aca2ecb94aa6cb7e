"""For tests of programs that use Duetime, and for its own: a clock turned by hand, and an executor with a script.

    clock, executor = HandClock(), ScriptedExecutor()
    engine = Engine(store, EmbeddedRegistry(), LocalBus(), executor, clock, EventHub(), EngineSettings())
    await engine.start()
    clock.advance(60)                       # a minute passes, and its timers wake
    await executor.until_started(1)         # waits for the event, not for time

This module is public API, with the same stability.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from duetime.domain.execution import Outcome
from duetime.domain.instants import SECOND
from duetime.ports.executor import Attempt

__all__ = ["SUCCESS", "HandClock", "Script", "ScriptedExecutor"]

SUCCESS = Outcome(http_status=200)

Script = Outcome | Sequence[Outcome] | Callable[[Attempt[Any]], Outcome]


class HandClock:
    """A `ports.clock.Clock` that stands still until it is turned."""

    def __init__(self, at: int = 1_767_225_600_000) -> None:  # 2026-01-01T00:00Z
        self._now = at
        self._monotonic = 0.0
        self._waiters: set[asyncio.Future[None]] = set()

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Lets time pass: both clocks advance, and waits for an instant up to then return."""
        if seconds < 0:
            raise ValueError("time does not pass backwards; use jump to set the wall clock back")
        self._monotonic += seconds
        self._turn(self._now + round(seconds * SECOND))

    def set(self, at: int) -> None:
        """Lets time pass until the wall clock is at `at`."""
        self.advance((at - self._now) / SECOND)

    def jump(self, seconds: float) -> None:
        """Sets the wall clock forward or back, as an operator or NTP does. No time passes."""
        self._turn(self._now + round(seconds * SECOND))

    def waiting(self) -> int:
        """Returns how many waits on this clock are open."""
        return len(self._waiters)

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        while not event.is_set():
            if self._now >= until:
                return False
            await self._until_turned_or(event)
        return True

    async def _until_turned_or(self, event: asyncio.Event) -> None:
        turned = asyncio.get_running_loop().create_future()
        woken = asyncio.ensure_future(event.wait())
        self._waiters.add(turned)
        try:
            await asyncio.wait({turned, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiters.discard(turned)
            woken.cancel()

    def _turn(self, at: int) -> None:
        self._now = at
        for turned in self._waiters:
            if not turned.done():
                turned.set_result(None)


class ScriptedExecutor:
    """A `ports.executor.Executor` with scripted outcomes. It records attempts, and can hold them.

    A script is an outcome, a list of them (one for each attempt, then the last one), or a function of the attempt.
    """

    def __init__(self, script: Script = SUCCESS) -> None:
        self.attempts: list[Attempt[Any]] = []  # as they began
        self.finished: list[Attempt[Any]] = []
        self.cancelled: list[Attempt[Any]] = []
        self.started = False
        self._script: Script = script
        self._scripts: dict[str, Script] = {}
        self._answered: dict[str, int] = {}
        self._gates: dict[str | None, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def answer(self, script: Script, url: str | None = None) -> None:
        """Sets the outcomes of attempts at `url`; None: at every URL without its own script."""
        if url is None:
            self._script = script
        else:
            self._scripts[url] = script
            self._answered.pop(url, None)

    def hold(self, url: str | None = None) -> None:
        """Holds attempts at `url` (None: at any) that begin from now on, until `let_go`."""
        self._gates.setdefault(url, asyncio.Event())

    def let_go(self, url: str | None = None) -> None:
        """Lets held attempts continue, and holds no more."""
        gate = self._gates.pop(url, None)
        if gate is not None:
            gate.set()

    async def until_started(self, count: int) -> None:
        """Waits until `count` attempts have begun in total."""
        await self._until(lambda: len(self.attempts) >= count)

    async def until_ended(self, count: int) -> None:
        """Waits until `count` attempts have ended or were cancelled in total."""
        await self._until(lambda: len(self.finished) + len(self.cancelled) >= count)

    def running(self) -> int:
        return len(self.attempts) - len(self.finished) - len(self.cancelled)

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.started = False

    async def execute(self, attempt: Attempt[Any]) -> Outcome:
        self.attempts.append(attempt)
        self._changed.set()
        try:
            for gate in [self._gates[url] for url in (None, _url(attempt)) if url in self._gates]:
                await gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(attempt)
            self._changed.set()
            raise
        self.finished.append(attempt)
        self._changed.set()
        return self._outcome(attempt)

    def _outcome(self, attempt: Attempt[Any]) -> Outcome:
        url = _url(attempt)
        script = self._scripts.get(url, self._script)
        if isinstance(script, Outcome):
            return script
        if callable(script):
            return script(attempt)
        answered = self._answered.get(url, 0)
        self._answered[url] = answered + 1
        return script[min(answered, len(script) - 1)]

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()


def _url(attempt: Attempt[Any]) -> str:
    """Returns the URL of an attempt; empty if it is none of a webhook."""
    return getattr(attempt.payload, "url", "")
