"""Duetime inside a program: a node without a port, and a worker, in a thread with its own event loop.

It has the store, engine and API of a server, and keeps the same promises: a kill -9 of the program loses no enqueued
job, and interrupted executions run again. A process that is forked from the program uses the node of its parent
(`forked.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from litestar.types import ASGIApp

from duetime.api.app import create_app
from duetime.client.calls import Call
from duetime.client.errors import ServerAway
from duetime.domain.errors import ComeBack, NotFound
from duetime.domain.held_specs import plain
from duetime.domain.identity import LOCAL
from duetime.domain.work import Assignment, Joined, Joining, Leaving, Polled, Polling, Reported, Reporting
from duetime.functions.registry import Registry
from duetime.functions.source import SourceAway, UnknownWorker
from duetime.functions.worker import Worker
from duetime.node import Node
from duetime.ports.worker_gateway import WorkerGateway
from duetime.sdk.asking import ask_in_process
from duetime.sdk.forked import CallsFromChildren, CallsToParent
from duetime.settings.loading import load
from duetime.telemetry.logs import log_as_programs_do

T = TypeVar("T")

log = logging.getLogger("duetime")

START_SECONDS = 60.0  # to open the database, and to migrate it if necessary
STOP_SECONDS = 60.0


class EmbeddedSource:
    """A `functions.source.Source` that calls the node's worker gateway directly."""

    def __init__(self, gateway: Callable[[], WorkerGateway]) -> None:
        self._gateway = gateway

    async def join(self, joining: Joining) -> Joined:
        return await _translated(self._gateway().join(LOCAL.tenant, LOCAL.user_id, joining))

    async def poll(self, polling: Polling) -> Polled:
        polled = await _translated(self._gateway().poll(LOCAL.tenant, polling))
        return Polled([_with_values(assignment) for assignment in polled.assignments])

    async def report(self, reporting: Reporting) -> Reported:
        return await _translated(self._gateway().report(LOCAL.tenant, reporting))

    async def leave(self, leaving: Leaving) -> None:
        await _translated(self._gateway().leave(LOCAL.tenant, leaving.worker_id))


def _with_values(assignment: Assignment) -> Assignment:
    """Returns the assignment with decoded arguments: the node holds large ones as JSON text."""
    if not isinstance(assignment.args, msgspec.Raw) and not isinstance(assignment.kwargs, msgspec.Raw):
        return assignment
    return msgspec.structs.replace(assignment, args=plain(assignment.args), kwargs=plain(assignment.kwargs))


async def _translated(asked: Coroutine[Any, Any, T]) -> T:
    """Translates errors of the gateway for the worker, which retries, for example after a full disk."""
    try:
        return await asked
    except NotFound as error:
        raise UnknownWorker(error.message) from None
    except ComeBack as error:
        raise SourceAway(error.message, error.retry_after) from None


def _stopped() -> ServerAway:
    return ServerAway("this Duetime was stopped during the call; it may have been carried out or not", was_sent=True)


def _not_running() -> RuntimeError:
    return RuntimeError("this embedded Duetime is not running: use it in a `with`, or call start() first")


class Embedded:
    """An `Asking`, from `start` to `close`, for the process that starts it and for processes forked from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app: ASGIApp | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._asked: set[Future[Any]] = set()
        self._has_ended = False
        self._process = os.getpid()
        self._from_children = CallsFromChildren()
        self._to_parent = CallsToParent(self._from_children)

    def _is_child(self) -> bool:
        return os.getpid() != self._process

    def start(self, registry: Registry, slots: int, begun: Callable[[], None]) -> None:
        """Starts the node. Calls `begun` in this thread before the first function runs. Raises errors of the node."""
        ready, go = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(registry, slots, ready, go), name="duetime", daemon=True
        )
        self._thread.start()
        if not ready.wait(START_SECONDS):
            raise TimeoutError(f"Duetime did not start on {self._folder} within {START_SECONDS:g} s")
        if self._failure is not None:
            raise self._failure
        try:
            begun()
        finally:
            go.set()

    def ask(self, call: Call[T]) -> T:
        if self._is_child():
            return self._to_parent.ask(call)
        loop, app = self._running()
        if threading.current_thread() is self._thread:
            raise RuntimeError("this call would wait for itself: in an async function, use the async method")
        asked = self._submit(ask_in_process(app, call), loop)
        try:
            return asked.result()
        except CancelledError:
            raise _stopped() from None

    async def ask_async(self, call: Call[T]) -> T:
        if self._is_child():
            return await self._to_parent.ask_async(call)
        loop, app = self._running()
        if asyncio.get_running_loop() is loop:
            return await ask_in_process(app, call)
        asked = self._submit(ask_in_process(app, call), loop)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _stopped() from None

    def _submit(self, asked: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
        """Runs the call on the node's loop. A call in the loop's last moments fails; otherwise it would never end."""
        try:
            future = asyncio.run_coroutine_threadsafe(asked, loop)
        except RuntimeError:  # the loop is closed
            asked.close()
            raise _not_running() from None
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        if self._has_ended:
            self._abandon()
        return future

    def _abandon(self) -> None:
        """Ends the calls without a response. The loop is closed, so nothing else ends them."""
        for future in list(self._asked):
            with suppress(InvalidStateError):
                future.set_exception(_stopped())

    def close(self) -> None:
        """Waits for running functions, then stops the node. A forked process only closes its connection."""
        if self._is_child():
            self._to_parent.close()
            return
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is None or stop is None or thread is None:
            return
        with suppress(RuntimeError):  # the loop is closed: the node failed, and `start` raised the reason
            loop.call_soon_threadsafe(stop.set)
        thread.join(STOP_SECONDS)
        self._thread = None

    def _running(self) -> tuple[asyncio.AbstractEventLoop, ASGIApp]:
        if self._loop is None or self._app is None:
            raise _not_running() from self._failure
        return self._loop, self._app

    def _run(self, registry: Registry, slots: int, ready: threading.Event, go: threading.Event) -> None:
        try:
            asyncio.run(self._serve(registry, slots, ready, go))
        except BaseException as error:
            self._failure = error
            if ready.is_set():
                log.error("the embedded Duetime failed: its jobs do not run any more", exc_info=error)
        finally:
            self._app = None
            self._has_ended = True
            self._abandon()
            self._from_children.close()
            ready.set()

    async def _serve(self, registry: Registry, slots: int, ready: threading.Event, go: threading.Event) -> None:
        # The environment of the program does not configure the node.
        settings = load({"DATA": str(self._folder), "METRICS_PORT": "0"}, {})
        log_as_programs_do()
        node = Node(settings)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with node.running() as context:
            self._app = create_app(context, node.gate)
            self._from_children.start(self._app)
            try:
                ready.set()
                await asyncio.to_thread(go.wait)
                source = EmbeddedSource(context.engine.worker_gateway)
                worker = Worker(source, registry, name="embedded", slots=slots) if registry else None
                await self._work(worker, self._stop)
            finally:
                await self._from_children.stop()

    async def _work(self, worker: Worker | None, stop: asyncio.Event) -> None:
        if worker is None:
            await stop.wait()
            return
        working = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        worker.stop()
        await working
