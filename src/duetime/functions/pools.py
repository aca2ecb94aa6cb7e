"""Pools that run sync functions: in threads of the worker, or in child processes (`children.py`).

The worker opens slots of a pool. An open slot runs one call after another, and closes when there is no call to take.
So a burst of short calls costs one hand-over, not one for each call.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from duetime.domain.work import Ended
from duetime.functions.calls import Call, Now, perform

RAMP_SECONDS = 0.001

Take = Callable[[], Call | None]  # the next call to begin; called from any thread


class Pool(Protocol):
    """`take` gives a slot its next call. The pool calls `on_ends` and `on_closed` on the loop; `on_closed` gets the
    number of slots that have closed. The end of a stopped call is passed to `on_ends`, too."""

    async def start(self) -> None:
        """The pool may take calls from now on."""

    def open(self, most: int, waiting: int) -> int:
        """Opens up to `most` slots, because calls are waiting. Returns how many. It may ask for more a little later,
        through `on_ready`."""

    def stop_call(self, call: Call) -> bool:
        """Stops a running call by force. Returns False if this pool can't: the call ends when its function returns."""

    async def stop(self) -> None:
        """Stops the pool. Calls that still run are abandoned."""


class PoolEvents(Protocol):
    """Callbacks from a pool to its worker, on the worker's event loop."""

    def on_ends(self, ends: list[tuple[Call, Ended]]) -> None: ...

    def on_closed(self, slots: int) -> None: ...

    def on_ready(self) -> None: ...


class ThreadPool:
    """Threads of the worker, started as they are needed, one for each slot that is open at a time.

    A thread can't be stopped from outside. A call that exceeds its timeout is reported as timed out, and its `context`
    says `cancelled`; but it keeps its slot until its function returns. Functions that may hang need pool="process".

    One slot opens at first, and twice as many each millisecond while calls wait. One thread completes a burst of very
    short calls before another would have woken, and threads that compete for the GIL only slow each other down.
    """

    def __init__(self, take: Take, events: PoolEvents, now: Now) -> None:
        self._take = take
        self._events = events
        self._now = now
        self._opened: SimpleQueue[bool] = SimpleQueue()  # True for a slot to open, False for a thread to end
        self._threads = 0
        self._open_slots = 0
        self._step = 1
        self._ramp: asyncio.TimerHandle | None = None
        self._ends: deque[tuple[Call, Ended] | None] = deque()  # None: a slot has closed
        self._is_told = False
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def open(self, most: int, waiting: int) -> int:
        slots = min(most, waiting, self._step)
        for _ in range(slots):
            self._open_slot()
        if waiting > slots and most > slots and self._ramp is None:
            self._ramp = self._loop.call_later(RAMP_SECONDS, self._go_on)
        return slots

    def _open_slot(self) -> None:
        self._open_slots += 1
        if self._open_slots > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"duetime-{self._threads}", daemon=True).start()
        self._opened.put(True)

    def _go_on(self) -> None:
        self._ramp = None
        self._step *= 2
        self._events.on_ready()
        if self._ramp is None:
            self._step = 1

    def stop_call(self, call: Call) -> bool:
        return False

    async def stop(self) -> None:
        """Threads that are still in a function are left behind; they are daemons, and end with the process."""
        if self._ramp is not None:
            self._ramp.cancel()
        for _ in range(self._threads):
            self._opened.put(False)

    # In a thread

    def _work(self) -> None:
        clean_context = contextvars.Context()
        while self._opened.get():
            while (call := self._take()) is not None:
                call.began_at = monotonic()
                # A copy for each call: context variables that a function sets do not reach the next call.
                self._tell((call, clean_context.copy().run(perform, call, self._now)))
            self._tell(None)

    def _tell(self, end: tuple[Call, Ended] | None) -> None:
        self._ends.append(end)
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._gather)
            except RuntimeError:  # the loop was closed while this call still ran
                return

    def _gather(self) -> None:
        self._is_told = False  # first: an end that comes from now on schedules `_gather` again
        ends: list[tuple[Call, Ended]] = []
        closed = 0
        while self._ends:
            end = self._ends.popleft()
            if end is None:
                closed += 1
            else:
                ends.append(end)
        self._open_slots -= closed
        if ends:
            self._events.on_ends(ends)
        if closed:
            self._events.on_closed(closed)
