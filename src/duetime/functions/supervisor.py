"""Runs workers: one in this process, or several under a parent that forwards signals and replaces dead ones."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import structlog

from duetime.functions.loading import AppNotFound, load_app
from duetime.functions.registry import Registry
from duetime.functions.source import SourceRefused
from duetime.functions.worker import Worker

MakeWorker = Callable[[Registry], Worker]

STOPS = (signal.SIGTERM, signal.SIGINT)
HEALTHY_SECONDS = 10.0  # a process that lived this long is replaced at once when it dies
LONGEST_PAUSE_SECONDS = 10.0
LAST_SECONDS = 45.0  # longer than a worker takes to stop
REFUSED = 78  # a child's exit code: it gave up, and a replacement would, too

log = structlog.get_logger()


async def run_worker(worker: Worker) -> None:
    """Runs in the main thread until SIGTERM or SIGINT. A second signal ends the wait for running calls."""
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, worker.stop)
    try:
        await worker.run()
    finally:
        for number in STOPS:
            loop.remove_signal_handler(number)


def run_processes(app: str, count: int, make_worker: MakeWorker) -> int:
    """Runs `count` workers of this app, each in its own process, until they are stopped. Returns the exit code. A
    single worker runs in this process. Call it from a program with a single thread, because it forks."""
    if count == 1:
        asyncio.run(run_worker(make_worker(load_app(app).registry)))
        return 0
    return WorkerSupervisor(app, count, make_worker).run()


class WorkerSupervisor:
    """The parent process. It imports no app and holds no lease; it waits for children and signals."""

    def __init__(self, app: str, count: int, make_worker: MakeWorker) -> None:
        self._app = app
        self._count = count
        self._make_worker = make_worker
        self._children: dict[int, float] = {}  # start time by pid
        self._is_stopping = False
        self._code = 0
        self._pause = 0.0
        self._alive, self._hold = os.pipe()  # children read from it, and see the end of file when the parent dies

    def run(self) -> int:
        before = {number: signal.signal(number, self._forward) for number in STOPS}
        try:
            for _ in range(self._count):
                self._start()
            while self._children:
                self._reap()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._alive)
            os.close(self._hold)
        return self._code

    def _forward(self, number: int, frame: object) -> None:
        self._is_stopping = True
        for pid in list(self._children):
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # just reaped
                continue

    def _start(self) -> None:
        # Blocked until the child has its own handlers and the parent has its pid, so that no signal is lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        pid = 0
        try:
            pid = os.fork()
            if pid:
                self._children[pid] = time.monotonic()
            else:
                self._be_child()
        finally:
            if pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)

    def _reap(self) -> None:
        pid, status = os.waitpid(-1, 0)
        started_at = self._children.pop(pid, None)
        if started_at is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if code == REFUSED and not self._is_stopping:
            self._code = 1
            os.kill(os.getpid(), signal.SIGTERM)
        elif not self._is_stopping:
            log.error("a worker's process died and is replaced", process=pid, code=code)
            self._pause = 0.0 if time.monotonic() - started_at > HEALTHY_SECONDS else self._next_pause()
            time.sleep(self._pause)
            if not self._is_stopping:
                self._start()

    def _next_pause(self) -> float:
        return min(max(0.1, 2 * self._pause), LONGEST_PAUSE_SECONDS)

    # In the child

    def _be_child(self) -> None:
        """Runs the worker and exits. Never returns into the parent's code."""
        code = 1
        try:
            os.close(self._hold)
            for number in STOPS:
                signal.signal(number, signal.SIG_DFL)
            threading.Thread(target=self._watch_parent, name="duetime-parent", daemon=True).start()
            asyncio.run(self._serve())
            code = 0
        except (SourceRefused, AppNotFound, ValueError) as error:
            code = REFUSED
            log.error("a worker gave up", error=str(error))
        except BaseException:
            log.exception("a worker failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    async def _serve(self) -> None:
        worker = self._make_worker(load_app(self._app).registry)
        running = asyncio.ensure_future(run_worker(worker))
        await asyncio.sleep(0)  # its signal handlers are installed now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        await running

    def _watch_parent(self) -> None:
        """Waits for the parent's death, then sends this process SIGTERM, and SIGKILL later in case the loop hangs."""
        os.read(self._alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
