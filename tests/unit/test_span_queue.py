"""The queue to the collector: bounded, counted, and never waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from duetime.telemetry import span_queue
from duetime.telemetry.emitted import SpansExported
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.span_queue import MOST_WAITING, SpanQueue
from duetime.telemetry.spans import Span
from patience import PATIENCE_SECONDS

LOT = MOST_WAITING // 2  # sent at once
SPAN = Span("fire", "0" * 31 + "1", "0" * 15 + "1", "", 0, 1, {})


class Collector:
    """Takes spans, or hangs until it is closed, as one that can't be reached does."""

    def __init__(self, hangs: bool = False, fails: bool = False) -> None:
        self.got = 0
        self.called = threading.Event()
        self._hangs, self._fails = hangs, fails
        self._closed = threading.Event()

    def export(self, spans: Sequence[Span]) -> bool:
        self.called.set()
        if self._hangs:
            self._closed.wait(PATIENCE_SECONDS)
        if self._fails:
            raise OSError("no route")
        self.got += len(spans)
        return True

    def close(self) -> None:
        self._closed.set()


class Reports:
    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.sent = self.lost = 0
        self.came = asyncio.Event()
        self.telemetry.subscribe(SpansExported, self._note)

    def _note(self, exported: SpansExported) -> None:
        self.sent += exported.sent
        self.lost += exported.lost
        self.came.set()

    async def until(self, count: int) -> None:
        """Waits until so many spans were sent or lost."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.sent + self.lost < count:
                self.came.clear()
                await self.came.wait()


async def test_spans_are_sent_and_counted():
    reports, collector = Reports(), Collector()
    queue = SpanQueue(reports.telemetry, collector.export, collector.close)
    queue.start()
    queue.submit([SPAN] * LOT)
    await reports.until(LOT)
    queue.submit([SPAN])
    await queue.stop()
    assert (collector.got, reports.lost) == (LOT + 1, 0)


async def test_a_collector_that_hangs_costs_spans_and_delays_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(span_queue, "GATHER_SECONDS", 0.01)
    reports, collector = Reports(), Collector(hangs=True)
    queue = SpanQueue(reports.telemetry, collector.export, collector.close, most=100)
    queue.start()
    queue.submit([SPAN])
    assert await asyncio.to_thread(collector.called.wait, PATIENCE_SECONDS)
    queue.submit([SPAN] * 60)
    queue.submit([SPAN] * 60)
    queue.submit([SPAN] * 60)
    began = time.monotonic()
    with capture_logs() as lines:
        await queue.stop()
    assert time.monotonic() - began < PATIENCE_SECONDS / 2, "a stop does not wait for it"
    assert reports.lost == 80 + 100 + 1, "beyond the bound, those left at the stop, and the one that it held"
    assert [line["log_level"] for line in lines] == ["warning"]


async def test_an_outage_is_logged_once_and_its_end_too():
    reports, failing = Reports(), Collector(fails=True)
    queue = SpanQueue(reports.telemetry, failing.export, failing.close)
    queue.start()
    with capture_logs() as lines:
        for fails in (True, True, False, False):
            failing._fails = fails
            expected = reports.sent + reports.lost + LOT
            queue.submit([SPAN] * LOT)
            await reports.until(expected)
    await queue.stop()
    assert (reports.sent, reports.lost) == (2 * LOT, 2 * LOT)
    assert [line["log_level"] for line in lines] == ["warning", "info"]


async def test_a_queue_that_never_started_stops():
    await SpanQueue(Telemetry(), lambda _: True, lambda: None).stop()
