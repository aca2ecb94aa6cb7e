"""The worker: joins a source, keeps a poll open while it has free slots, and reports the results.

Each report renews the worker's lease. While the lease is in doubt, no call begins. When the lease has expired, other
workers get the executions: the worker abandons all running calls and joins again. No function can end a worker.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from time import monotonic
from typing import Literal

import structlog

from duetime.domain.work import MOST_REPORTED, MOST_SLOTS, Joined, Joining, Leaving, Polling, Reported, Reporting
from duetime.functions.calls import Now, wall_clock
from duetime.functions.children import ProcessPool
from duetime.functions.context import logging_routed
from duetime.functions.outbox import Batch, Outbox
from duetime.functions.pools import Pool, PoolEvents, Take, ThreadPool
from duetime.functions.registry import Registry
from duetime.functions.runner import Runner
from duetime.functions.source import Source, SourceAway, SourceError, UnknownWorker

BEATS_A_LEASE = 3
BUSY_BEAT_SECONDS = 2.0  # while something runs: the longest time until the worker receives a cancel
AHEAD_SECONDS = 0.05  # prefetch as many calls as end in this time
MOST_UNSAID = 4 * MOST_REPORTED  # unreported ends at which the worker stops polling
POLL_LINGER_SECONDS = 0.002
EARLY_SECONDS = 0.5  # an empty response to a poll sooner than this means that the source did not wait
LONGEST_EARLY_PAUSE_SECONDS = 1.0
SHORTEST_PACE_SECONDS = 0.0005  # the shortest time over which throughput is measured
FLUSH_SECONDS = 5.0  # for the last reports of a worker that stops
SHORTEST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 10.0

log = structlog.get_logger()


class Worker:
    """`slots`: how many calls run at a time. `pool`: whether sync functions run in threads or in processes. Processes
    import the app again, so they need `app` ("module:app"). `prefetch`: the most calls fetched ahead of free slots, and
    only while calls end quickly."""

    def __init__(
        self,
        source: Source,
        registry: Registry,
        *,
        name: str | None = None,
        slots: int = 32,
        pool: Literal["thread", "process"] = "thread",
        app: str | None = None,
        drain_seconds: float = 30.0,
        prefetch: int = 2 * MOST_SLOTS,
        poll_seconds: float = 20.0,
        now: Now = wall_clock,
    ) -> None:
        if not len(registry):
            raise ValueError("the app has no functions: register one before its worker starts")
        if not 1 <= slots <= MOST_SLOTS:
            raise ValueError(f"slots is how many functions run at a time, 1 to {MOST_SLOTS}; it is {slots}")
        if pool == "process" and app is None:
            raise ValueError('pool="process" needs `app`, such as "jobs:app": each process imports it')
        self._source = source
        self._registry = registry
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._slots = slots
        self._pool = pool
        self._app = app
        self._drain_seconds = drain_seconds
        self._prefetch = prefetch
        self._poll_seconds = poll_seconds
        self._now = now
        self._stop = asyncio.Event()
        self._abandon = asyncio.Event()
        self._is_last = False  # the reports sent now are the last ones
        self._is_reporting = True  # False: the last report did not get through
        # Separate, because one may fail while the others succeed: a stopping node takes reports, and gives no work.
        self._backoff, self._poll_backoff, self._report_backoff = Backoff(), Backoff(), Backoff()
        self._throughput = Throughput()
        self._outbox: Outbox
        self._runner: Runner
        self.joined: Joined | None = None

    def stop(self) -> None:
        """Stop polling, wait for running calls, report them, and leave. A second call ends the wait."""
        if self._stop.is_set():
            self._abandon.set()
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop` is called. Raises SourceRefused if the source refuses this worker."""
        self._outbox = Outbox()
        self._runner = Runner(self._registry, self._slots, self._make_pool, self._outbox, self._now)
        with logging_routed():
            try:
                await self._start()
                while not self._stop.is_set() and (joined := await self._join()) is not None:
                    try:
                        await self._serve(joined)
                    except UnknownWorker:
                        await self._lose()
            finally:
                await self._runner.stop()

    async def _start(self) -> None:
        """Returns when the pool is ready, or when `stop` was called before that."""
        starting = asyncio.create_task(self._runner.start())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        if starting.done():
            starting.result()

    def _make_pool(self, take: Take, events: PoolEvents, now: Now) -> Pool:
        if self._pool == "process":
            assert self._app is not None
            return ProcessPool(self._app, self._slots, take, events, now)
        return ThreadPool(take, events, now)

    async def _join(self) -> Joined | None:
        joining = Joining(self._name, self._registry.names(), self._slots)
        while not self._stop.is_set():
            sent_at = monotonic()
            try:
                self.joined = joined = await self._source.join(joining)
            except SourceAway as error:
                await self._wait_for_source("could not join", error, self._backoff)
                continue
            log.info("joined", worker=joined.worker_id, name=self._name, functions=len(self._registry))
            self._runner.trust(sent_at + joined.lease_seconds)
            return joined
        return None

    async def _lose(self) -> None:
        """The lease has expired: drop all calls and unsent reports, and pause before joining again."""
        running, unsaid = self._runner.abandon(), self._outbox.clear()
        log.error(
            "the lease has expired: running calls are dropped, and the worker joins again",
            running=running,
            unsaid=unsaid,
        )
        self._is_reporting = True
        await self._backoff.sleep(self._backoff.next(LONGEST_BACKOFF_SECONDS), self._stop)

    async def _serve(self, joined: Joined) -> None:
        poller = asyncio.create_task(self._poll_on(joined))
        reporter = asyncio.create_task(self._report_on(joined))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({poller, reporter, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (poller, reporter):
                if task.done():
                    task.result()
            poller.cancel()
            await self._drain(reporter)
            await self._leave(joined)
        finally:
            stopping.cancel()
            poller.cancel()
            reporter.cancel()
            await asyncio.gather(poller, reporter, stopping, return_exceptions=True)

    # Work comes in

    async def _poll_on(self, joined: Joined) -> None:
        while True:
            room = await self._wait_for_room()
            sent_at = monotonic()
            try:
                polled = await self._source.poll(Polling(joined.worker_id, room, self._poll_seconds))
            except SourceAway as error:
                await self._wait_for_source("could not poll", error, self._poll_backoff)
                continue
            self._backoff.reset()
            self._throughput.came(len(polled.assignments))
            self._runner.offer(polled.assignments)
            if polled.assignments or monotonic() - sent_at >= min(EARLY_SECONDS, self._poll_seconds / 2):
                self._poll_backoff.reset()
            else:  # poll less and less often if the source does not wait
                seconds = self._poll_backoff.next(LONGEST_EARLY_PAUSE_SECONDS)
                await self._poll_backoff.sleep(seconds, self._stop)

    async def _wait_for_room(self) -> int:
        """Returns how many calls to ask for. With few free slots it waits a moment, to fill more with one poll."""
        has_lingered = False
        while True:
            self._runner.changed.clear()
            ahead = min(self._throughput.ahead(self._runner.ended, self._runner.busy_seconds()), self._prefetch)
            ahead = 0 if self._runner.has_long else ahead
            room = min(self._runner.room() + ahead, MOST_SLOTS)
            if room < 1 or not self._is_reporting or len(self._outbox) >= MOST_UNSAID:
                await self._runner.changed.wait()
            elif has_lingered or 2 * room >= min(self._slots + ahead, MOST_SLOTS):
                return room
            else:
                has_lingered = True
                await asyncio.sleep(POLL_LINGER_SECONDS)

    # Reports go out

    async def _report_on(self, joined: Joined) -> None:
        beat = joined.lease_seconds / BEATS_A_LEASE
        sent_at = monotonic()
        while not (self._is_last and self._outbox.is_empty()):
            seconds = min(beat, BUSY_BEAT_SECONDS) if self._runner.held() else beat
            await self._outbox.wait(max(0.0, sent_at + seconds - monotonic()))
            batch, sent_at = self._outbox.take(), monotonic()
            self._act_on(await self._send(joined, batch))

    async def _send(self, joined: Joined, batch: Batch) -> Reported:
        """Retries until the report succeeds: no end is lost while the source is unreachable."""
        while True:
            sent_at = monotonic()
            running = self._runner.running() + self._outbox.unsaid()  # on each try: more calls may have come
            reporting = Reporting(joined.worker_id, running, batch.ended, batch.notes, batch.unbegun)
            try:
                reported = await self._source.report(reporting)
            except SourceAway as error:
                self._is_reporting = False  # begin no calls that could not be reported
                at_most = joined.lease_seconds / BEATS_A_LEASE
                await self._wait_for_source("could not report", error, self._report_backoff, at_most)
                continue
            self._backoff.reset()
            self._report_backoff.reset()
            self._runner.trust(sent_at + joined.lease_seconds)
            if not self._is_reporting:
                self._is_reporting = True
                self._runner.changed.set()
            return reported

    def _act_on(self, reported: Reported) -> None:
        for claim in reported.cancel:
            self._runner.cancel(claim)
        if reported.refused:
            log.warning(
                "results were refused: the executions are no longer this worker's",
                count=len(reported.refused), executions=[claim.execution_id for claim in reported.refused[:10]],
            )  # fmt: skip

    # Away, and away for good

    async def _wait_for_source(
        self, what: str, error: SourceAway, backoff: Backoff, at_most: float = LONGEST_BACKOFF_SECONDS
    ) -> None:
        """Sleeps as long as the source requests, within bounds, plus a jittered backoff that spreads the retries."""
        seconds = backoff.next(at_most) + min(error.retry_after_seconds or 0.0, at_most)
        if backoff.failures == 1:
            log.warning(f"{what}; trying again until it works", error=error.message)
        await backoff.sleep(seconds, self._abandon if self._stop.is_set() else self._stop)

    async def _drain(self, reporter: asyncio.Task[None]) -> None:
        """Wait until running calls have ended and are reported, then abandon the rest."""
        never_began = self._runner.forget_waiting()  # the next report gives them back
        log.info("stopping", running=self._runner.held(), never_began=never_began, seconds=self._drain_seconds)
        ended = asyncio.create_task(self._wait_until_ended())
        abandoned = asyncio.create_task(self._abandon.wait())
        try:
            await asyncio.wait(
                {reporter, ended, abandoned}, timeout=self._drain_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
            abandoned.cancel()
        if left := self._runner.abandon():
            log.warning("calls are abandoned, and go to other workers", count=left)
        self._is_last = True
        self._outbox.send_soon(at_once=True)
        await asyncio.wait({reporter}, timeout=FLUSH_SECONDS)
        if reporter.done():
            reporter.result()
        else:
            log.error("the last results could not be reported: their executions run again", count=len(self._outbox))

    async def _wait_until_ended(self) -> None:
        while self._runner.held():
            self._runner.changed.clear()
            await self._runner.changed.wait()

    async def _leave(self, joined: Joined) -> None:
        await self._runner.stop()  # first: other workers begin the returned executions at once
        try:
            await self._source.leave(Leaving(joined.worker_id))
        except SourceError as error:
            log.warning("could not leave: other workers wait until the lease expires", error=error.message)


class Throughput:
    """Measures how fast calls end, and so how many may be fetched ahead without waiting for long.

    Time without any held call does not count: the source was slow then, and a worker that asked for less because of it
    would wait even more often. The size of the last poll bounds the next one: a few quick calls promise nothing about
    many.
    """

    def __init__(self) -> None:
        self._ended = 0
        self._busy_seconds = 0.0
        self._rate = 0.0
        self._most = 0

    def came(self, count: int) -> None:
        self._most = 4 * count

    def ahead(self, ended: int, busy_seconds: float) -> int:
        if (elapsed := busy_seconds - self._busy_seconds) > SHORTEST_PACE_SECONDS:
            self._rate = (self._rate + (ended - self._ended) / elapsed) / 2
            self._ended, self._busy_seconds = ended, busy_seconds
        return min(int(self._rate * AHEAD_SECONDS), self._most)


class Backoff:
    """Exponential backoff with jitter, so that workers that failed together do not retry together."""

    def __init__(self) -> None:
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self, at_most: float) -> float:
        self.failures += 1
        longest: float = min(
            SHORTEST_BACKOFF_SECONDS * 2 ** min(self.failures - 1, 10), at_most, LONGEST_BACKOFF_SECONDS
        )
        return longest * random.uniform(0.5, 1.0)

    async def sleep(self, seconds: float, unless: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await unless.wait()
        except TimeoutError:
            return
