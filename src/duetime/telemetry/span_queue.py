"""The queue between the event loop and the collector of traces: bounded, and emptied by a thread of its own.

A collector that is slow, or away, costs spans: they are counted. It never delays a request, an execution or a stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from duetime.telemetry.emitted import SpansExported
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.spans import Span

MOST_WAITING = 4096  # spans; some 4 MB. Those of a burst of 20,000 executions, if one in a hundred is sampled
BATCH = 128  # encoding it takes 2 ms, in which the event loop may have to wait
GATHER_SECONDS = 2.0
FLUSH_SECONDS = 0.4  # of a stop

log = structlog.get_logger()


class SpanQueue:
    """`export(spans)`: runs in the thread; returns whether the collector took them. `close()`: makes it give up."""

    def __init__(
        self, telemetry: Telemetry, export: Callable[[Sequence[Span]], bool], close: Callable[[], None],
        most: int = MOST_WAITING,
    ) -> None:  # fmt: skip
        self._telemetry = telemetry
        self._export = export
        self._close = close
        self._most = most
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._is_stopping = False
        self._sending = 0  # spans of the batch that the collector is to take now
        self._is_over = False
        self._dropped = 0  # since the last report
        self._is_failing = False
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def submit(self, spans: Sequence[Span]) -> None:
        """Takes spans, as many as there is room for. Never waits."""
        room = max(0, self._most - len(self._waiting))
        if room < len(spans):
            self._dropped += len(spans) - room
            spans = spans[:room]
        self._waiting.extend(spans)
        if 2 * len(self._waiting) >= self._most:  # else they wait until the burst is over
            self._wake.set()

    async def stop(self) -> None:
        """Sends what waits, if the collector takes it within FLUSH_SECONDS. The thread ends with the process."""
        if self._thread is None:
            return
        self._is_stopping = True
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._ended.wait()
        self._close()
        self._report(0, len(self._waiting) + self._sending)  # it did not take them in time
        self._is_over = True
        self._thread = None

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for this thread any more
            while not (self._is_stopping and not self._waiting):
                self._wake.wait(GATHER_SECONDS)
                self._wake.clear()
                self._empty()
            self._loop.call_soon_threadsafe(self._ended.set)

    def _empty(self) -> None:
        """In the thread: exports what waits."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._sending = len(batch)
            try:
                is_sent = self._export(batch)
            except Exception:  # noqa: BLE001 (reported as lost, and logged without what may hold a secret)
                is_sent = False
            sent, self._sending = len(batch) if is_sent else 0, 0
            self._loop.call_soon_threadsafe(self._report, sent, len(batch) - sent)

    def _report(self, sent: int, failed: int) -> None:
        if self._is_over:
            return
        dropped, self._dropped = self._dropped, 0
        lost = failed + dropped
        if sent or lost:
            self._telemetry.emit(SpansExported(sent, lost))
        if lost and not self._is_failing:
            log.warning("spans are lost: the collector does not take them, or not fast enough", lost=lost)
        elif sent and not lost and self._is_failing:
            log.info("the collector takes all spans again")
        if sent or lost:
            self._is_failing = lost > 0
