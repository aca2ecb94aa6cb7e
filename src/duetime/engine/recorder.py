"""The recorder: writes the ends of attempts, one page per commit.

A result stays in memory until it is written: a full disk makes it late, not lost. The dispatcher counts unwritten
results against its capacity, so their number is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import structlog

from duetime.domain.commands import Command, Finish
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import SECOND
from duetime.domain.overlap import may_release_another
from duetime.domain.states import OPEN
from duetime.engine.breaker import Breaker
from duetime.engine.execution_events import publish_ends
from duetime.engine.on_finish import OnFinishCommands, Result
from duetime.engine.pages import Pages
from duetime.engine.service import Service
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.store import Store, result_of
from duetime.process.crash import crash_point
from duetime.telemetry.debugging import debug
from duetime.telemetry.emitted import AttemptsEnded
from duetime.telemetry.hub import Telemetry

log = structlog.get_logger()

# While attempts run, more results will follow soon. A short wait turns many small commits, which would slow down the
# attempts, into few large ones. Attempts whose results are lost in a crash meanwhile are retried, as always.
GATHER_SECONDS = 0.1
ENOUGH = 2048  # results that are written without a wait. As large as a page of fires: fewer commits to wait for
PAGE = 2 * ENOUGH  # results in one commit at most: while one is written, more than ENOUGH others may end


class Recorder(Service):
    """`recorded(claims)` is called when their ends are written. `is_busy()`: attempts are running.

    `waiting_hint(due_at)`: an execution can be claimed from then on.
    """

    def __init__(
        self, store: Store, clock: Clock, node: int, events: EventHub, on_finish: OnFinishCommands, breaker: Breaker,
        telemetry: Telemetry, *,
        recorded: Callable[[Sequence[Claim]], None], is_busy: Callable[[], bool], waiting_hint: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__("recorder", clock)
        self._store = store
        self._node = node
        self._events = events
        self._on_finish = on_finish
        self._breaker = breaker
        self._telemetry = telemetry
        self._results: list[Result] = []
        self._writing: list[Result] = []
        self._pages = Pages(PAGE)
        self._enough = asyncio.Event()
        self._recorded = recorded
        self._is_busy = is_busy
        self._waiting_hint = waiting_hint

    def add(self, claim: Claim, end: AttemptEnd) -> None:
        self._results.append((claim, end))
        self._wake.set()
        if len(self._results) >= ENOUGH:
            self._enough.set()

    def unwritten(self) -> int:
        return len(self._writing) + len(self._results)

    def held(self) -> frozenset[str]:
        """Returns the executions whose attempts have ended and are not written yet."""
        return frozenset(claim.execution_id for claim, _ in (*self._writing, *self._results))

    def waiting_of(self) -> Counter[str]:
        """Returns the number of these executions by tenant."""
        return Counter(claim.tenant for claim, _ in (*self._writing, *self._results))

    async def run_once(self) -> int:
        while self._results:
            await self._gather()
            self._writing, self._results = self._results, []
            written = 0
            try:
                async for page, _ in self._record(self._node, self._writing):
                    written += len(page)
                    self._recorded([claim for claim, _ in page])
            except BaseException:
                self._results = self._writing[written:] + self._results
                raise
            finally:
                self._writing = []
        return self._clock.now() + SECOND

    async def _gather(self) -> None:
        if self._is_busy() and len(self._results) < ENOUGH:
            self._enough.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._enough.wait()

    async def stop(self) -> None:
        await super().stop()
        await self.run_once()

    async def record(self, node: int, results: Sequence[Result]) -> frozenset[str]:
        """Writes ends of attempts of `node` (or a worker) now. Returns the executions whose end was refused.

        Raises TimedOut if a page took too long; the pages before it are written.
        """
        refused: set[str] = set()
        async for _, late in self._record(node, results):
            refused |= late
        return frozenset(refused)

    async def _record(
        self, node: int, results: Sequence[Result]
    ) -> AsyncIterator[tuple[Sequence[Result], frozenset[str]]]:
        """Writes page after page. Yields each page once it is written, with its executions that were refused."""
        written = 0
        while written < len(results):
            for page, following in self._on_finish.pages(results[written : written + self._pages.size]):
                with self._pages.writing(len(page)):
                    refused = await self._record_page(node, page, following)
                written += len(page)
                yield page, refused

    async def _record_page(
        self, node: int, results: Sequence[Result], with_commands: Sequence[Result]
    ) -> frozenset[str]:
        now = self._clock.now()
        crash_point("before_finish")
        finish = Finish(node, now, tuple(end for _, end in results))
        following = self._on_finish.commands(with_commands, now)
        counted = self._breaker.count(now, results)
        commands: list[Command] = [finish, *following] if counted is None else [finish, *following, counted]
        began = self._clock.monotonic()
        answer, *others = await self._store.apply(commands)
        seconds = self._clock.monotonic() - began
        crash_point("after_finish")
        refused = result_of(finish, answer)
        debug("results of attempts were written", count=len(results), refused=len(refused), commands=len(commands))
        for execution_id in refused:
            log.warning("a late result was refused: this node no longer holds the claim", execution_id=execution_id)
        self._telemetry.emit(AttemptsEnded(now, results, refused, seconds))
        self._publish(results, frozenset(refused))
        self._on_finish.publish(results, following, others[: len(following)], refused, now)
        if counted is not None and not isinstance(others[-1], DuetimeError):
            self._breaker.learn(result_of(counted, others[-1]))
        return frozenset(refused)

    def _publish(self, results: Sequence[Result], refused: frozenset[str]) -> None:
        ends: list[AttemptEnd] = []
        for claim, end in results:
            if refused and end.execution_id in refused:
                continue
            if end.state in OPEN:
                self._waiting_hint(end.due_at)
            elif may_release_another(claim, end):
                self._waiting_hint(end.ended_at)
            ends.append(end)
        publish_ends(self._events, ends)
