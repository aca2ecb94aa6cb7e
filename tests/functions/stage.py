"""A node in memory for a worker: it assigns executions, fences them by token, and can fail or forget workers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec

from duetime.domain.states import Trigger
from duetime.domain.work import (
    Assignment,
    Ended,
    Joined,
    Joining,
    Leaving,
    Polled,
    Polling,
    Reported,
    Reporting,
    WorkClaim,
)
from duetime.functions.registry import Registry
from duetime.functions.source import SourceAway, SourceRefused, UnknownWorker
from duetime.functions.worker import Worker
from patience import PATIENCE_SECONDS

NOW = 1_795_000_000_000


class Held(msgspec.Struct):
    assignment: Assignment
    worker_id: int
    poll: int


class Stage:
    """`claims` and `ends` record all of them in order, so that a test can count them."""

    def __init__(self, *, lease_seconds: float = 30.0, keeps_time: bool = False, on_wire: bool = False) -> None:
        self.lease_seconds = lease_seconds
        self.keeps_time = keeps_time  # otherwise a lease is lost only when the test revokes it
        self.on_wire = on_wire  # everything goes through JSON and its bounds
        self.waiting: deque[Assignment] = deque()
        self.held: dict[str, Held] = {}
        self.claims: list[Assignment] = []
        self.ends: dict[str, list[Ended]] = {}
        self.refused: list[Ended] = []
        self.notes: dict[str, list[tuple[str, str]]] = {}
        self.progress: dict[str, Any] = {}
        self.workers: dict[int, float] = {}  # the end of the lease of each
        self.joins: list[Joining] = []
        self.polls: dict[int, int] = {}
        self.reports: list[int] = []  # the number of ends in each
        self.frees: list[int] = []
        self.left: list[int] = []
        self.unbegun: list[WorkClaim] = []
        self.cancelled: set[str] = set()
        self.is_away = False
        self.is_hasty = False  # answers polls at once, with nothing
        self.busy_seconds: float | None = None  # polls get a response with this wait
        self.loses_answers = False
        self.refusal: str | None = None
        self.changed = asyncio.Event()
        self._added = asyncio.Event()
        self._token = 0

    # Actions of a test

    def add(self, function: str, *args: Any, timeout_seconds: float = 60.0, **kwargs: Any) -> str:
        execution_id = f"e{len(self.ends)}"
        self.ends[execution_id] = []
        self._queue(execution_id, function, list(args), kwargs, 1, timeout_seconds)
        return execution_id

    def again(self, execution_id: str) -> None:
        """Adds another attempt of an ended execution."""
        last = next(claim for claim in reversed(self.claims) if claim.execution_id == execution_id)
        self._queue(
            execution_id, last.function, last.args, last.kwargs, last.attempt + 1, last.timeout_seconds,
            self.progress.get(execution_id),
        )  # fmt: skip

    def _queue(
        self, execution_id: str, function: str, args: list[Any], kwargs: dict[str, Any], attempt: int,
        timeout_seconds: float, progress: Any = None,
    ) -> None:  # fmt: skip
        self._token += 1
        self.waiting.append(
            Assignment(
                execution_id, attempt, self._token, "j1", "a job", function, args, kwargs, NOW, Trigger.SCHEDULE,
                timeout_seconds, progress,
            )
        )  # fmt: skip
        self._added.set()

    def cancel(self, execution_id: str) -> None:
        self.cancelled.add(execution_id)

    def lose(self) -> None:
        """Forgets all workers, and assigns their executions to the next that polls."""
        self.workers.clear()
        for held in list(self.held.values()):
            self._give_back(held)
        self.changed.set()

    def _give_back(self, held: Held) -> None:
        del self.held[held.assignment.execution_id]
        self._token += 1
        self.waiting.append(msgspec.structs.replace(held.assignment, token=self._token))
        self._added.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def end_of(self, execution_id: str) -> Ended:
        """Returns the end of the last requested attempt."""
        await self.until(lambda: bool(self.ends[execution_id]) and execution_id not in self.held and not self.waiting)
        return self.ends[execution_id][-1]

    async def run(self, function: str, *args: Any, timeout_seconds: float = 60.0, **kwargs: Any) -> Ended:
        return await self.end_of(self.add(function, *args, timeout_seconds=timeout_seconds, **kwargs))

    def log_of(self, execution_id: str, stream: str | None = None) -> str:
        return "".join(text for name, text in self.notes.get(execution_id, []) if stream in (None, name))

    # Calls of a worker

    async def join(self, joining: Joining) -> Joined:
        self._look(None)
        if self.refusal is not None:
            raise SourceRefused(self.refusal)
        self.joins.append(joining)
        worker_id = len(self.joins)
        self.workers[worker_id] = monotonic() + self.lease_seconds
        self.changed.set()
        return Joined(worker_id, self.lease_seconds)

    async def poll(self, polling: Polling) -> Polled:
        self._look(polling.worker_id)
        self.polls[polling.worker_id] = self.polls.get(polling.worker_id, 0) + 1
        self.frees.append(polling.free)
        self.changed.set()
        if self.busy_seconds is not None:
            raise SourceAway("the node is stopping", self.busy_seconds)
        if self.is_hasty:
            return Polled()
        try:
            async with asyncio.timeout(polling.wait_seconds):
                while not self.waiting:
                    self._added.clear()
                    await self._added.wait()
        except TimeoutError:
            return Polled()
        self._look(polling.worker_id)
        given = [self.waiting.popleft() for _ in range(min(polling.free, len(self.waiting)))]
        for assignment in given:
            self.held[assignment.execution_id] = Held(assignment, polling.worker_id, self.polls[polling.worker_id])
        self.claims += given
        self.changed.set()
        return self._carried(Polled(given))

    async def report(self, reporting: Reporting) -> Reported:
        self._look(reporting.worker_id)
        reporting = self._carried(reporting)
        self.workers[reporting.worker_id] = monotonic() + self.lease_seconds
        self.reports.append(len(reporting.ended))
        for note in reporting.notes:
            if self._holds(reporting.worker_id, note.execution_id, note.token):
                if note.text:
                    self.notes.setdefault(note.execution_id, []).append((note.stream, note.text))
                if note.progress is not msgspec.UNSET:
                    self.progress[note.execution_id] = msgspec.json.decode(note.progress)
        refused = [ended for ended in reporting.ended if not self._end(reporting.worker_id, ended)]
        self.refused += refused
        self.unbegun += reporting.unbegun
        self._give_back_unheard(reporting)
        self.changed.set()
        if self.loses_answers:
            raise SourceAway("the answer was lost")
        mine = [held.assignment.claim for held in self.held.values() if held.worker_id == reporting.worker_id]
        return Reported([it for it in mine if it.execution_id in self.cancelled], [ended.claim for ended in refused])

    async def leave(self, leaving: Leaving) -> None:
        self._look(leaving.worker_id)
        self.left.append(leaving.worker_id)
        del self.workers[leaving.worker_id]
        for held in [held for held in self.held.values() if held.worker_id == leaving.worker_id]:
            self._give_back(held)
        self.changed.set()

    def _look(self, worker_id: int | None) -> None:
        self.changed.set()
        if self.is_away:
            raise SourceAway("the node can't be reached")
        if worker_id is None:
            return
        until = self.workers.get(worker_id)
        if until is None or (self.keeps_time and until < monotonic()):
            raise UnknownWorker

    def _carried(self, message: Any) -> Any:
        if not self.on_wire:
            return message
        return msgspec.json.decode(msgspec.json.encode(message), type=type(message))

    def _holds(self, worker_id: int, execution_id: str, token: int) -> bool:
        held = self.held.get(execution_id)
        return held is not None and held.worker_id == worker_id and held.assignment.token == token

    def _end(self, worker_id: int, ended: Ended) -> bool:
        known = self.ends[ended.execution_id]
        if known and known[-1].token == ended.token:
            return True  # sent twice, because the response was lost
        if not self._holds(worker_id, ended.execution_id, ended.token):
            return False
        del self.held[ended.execution_id]
        known.append(ended)
        return True

    def _give_back_unheard(self, reporting: Reporting) -> None:
        """Drops claims that the worker does not report, except those of a response in flight."""
        running, last = set(reporting.running), self.polls.get(reporting.worker_id, 0)
        for held in list(self.held.values()):
            is_mine = held.worker_id == reporting.worker_id and held.poll < last
            if is_mine and held.assignment.claim not in running:
                self._give_back(held)


@asynccontextmanager
async def working(stage: Stage, registry: Registry, **options: Any) -> AsyncIterator[Worker]:
    """Runs a worker, and checks that it stops without an error."""
    worker = Worker(stage, registry, name="a worker", **options)
    running = asyncio.create_task(worker.run())
    try:
        await stage.until(lambda: bool(stage.joins) or running.done())
        yield worker
    finally:
        worker.stop()
        worker.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running
