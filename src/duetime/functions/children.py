"""Sync functions in child processes: one for each slot, used again and again, killed when a call must stop.

A child has its own session, so that the processes it has started are killed with it. A child that died for any reason
is replaced. No child outlives the worker: see `reaper.py`.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec
import structlog

from duetime.domain.work import Ended
from duetime.functions.calls import Call, Now, end_of
from duetime.functions.child import BOOT, Done, FromChild, Ready, Said
from duetime.functions.context import Stream
from duetime.functions.pools import PoolEvents, Take
from duetime.functions.reaper import Reaper, kill_group

STOP_SECONDS = 2.0  # between SIGTERM and SIGKILL
EXIT_SECONDS = 1.0  # for a child to exit after it has closed its socket
LAST_MESSAGES_SECONDS = 0.05  # for reading the last messages of a dead child
LONGEST_BACKOFF_SECONDS = 5.0
READ = 65_536

log = structlog.get_logger()
_decoder = msgspec.json.Decoder(FromChild)
_encoder = msgspec.json.Encoder()


class ChildProcess(asyncio.Protocol):
    """The worker's side of one child. `on_done(child, ended)`: its call ended. `on_gone(child)`: it is reaped."""

    def __init__(
        self, spec: str, reaper: Reaper, on_ready: Callable[[ChildProcess], None],
        on_done: Callable[[ChildProcess, Ended], None], on_gone: Callable[[ChildProcess], None],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._reaper = reaper
        self._on_ready = on_ready
        self._on_done = on_done
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._transport: asyncio.WriteTransport
        self._process: subprocess.Popen[bytes]
        self._pipes: list[tuple[Stream, int, codecs.IncrementalDecoder]] = []
        self._pidfd = -1
        self._killer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()
        self.was_ready = False
        self.is_doomed = False  # is being stopped: gets no more calls
        self.call: Call | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        pipes: list[tuple[Stream, tuple[int, int]]] = [("stdout", os.pipe()), ("stderr", os.pipe())]
        try:
            # From the loop's own thread: the kernel treats the end of the forking thread as the parent's death.
            self._process = subprocess.Popen(  # noqa: ASYNC220 (milliseconds)
                [sys.executable, "-c", BOOT, str(os.getpid()), self._spec, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL, stdout=pipes[0][1][1], stderr=pipes[1][1][1],
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
            for _, (_, end) in pipes:
                os.close(end)
        self._reaper.watch(self._process.pid)
        for stream, (end, _) in pipes:
            os.set_blocking(end, False)
            self._pipes.append((stream, end, codecs.getincrementaldecoder("utf-8")("replace")))
            self._loop.add_reader(end, self._read, len(self._pipes) - 1)
        self._watch_process()
        ours.setblocking(False)
        await self._loop.create_connection(lambda: self, sock=ours)

    def _watch_process(self) -> None:
        """Watch for the child's death. The socket does not show it if another process has inherited the socket."""
        if sys.platform == "linux":
            with suppress(OSError):  # an old kernel, or a sandbox
                self._pidfd = os.pidfd_open(self.pid)
                self._loop.add_reader(self._pidfd, self._died)

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._loop.call_later(LAST_MESSAGES_SECONDS, self._transport.close)

    def begin(self, call: Call) -> None:
        self.call = call
        call.began_at = monotonic()
        self._transport.write(_encoder.encode(call.assignment) + b"\n")

    def stop(self) -> None:
        """Sends SIGTERM now and SIGKILL two seconds later, to the child and to all processes it has started."""
        if not self.is_doomed:
            self.is_doomed = True
            kill_group(self.pid, signal.SIGTERM)
            self._killer = self._loop.call_later(STOP_SECONDS, kill_group, self.pid)

    def kill(self) -> None:
        self.is_doomed = True
        kill_group(self.pid)

    def how_it_ended(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    # Messages from the child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            match _decoder.decode(line):
                case Done(ended, level, trace):
                    self._read_all()
                    if self.call is not None:
                        self.call.level, self.call.trace = level, trace
                    self._on_done(self, ended)
                case Said(notes):
                    self._read_all()  # output printed before the notes
                    for note in notes:
                        self._take_note(note.text, note.progress)
                case Ready():
                    self.was_ready = True
                    self._on_ready(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        """Reap the child. A child that has closed its socket but still runs is useless, and is killed."""
        deadline = monotonic() + EXIT_SECONDS
        while self._process.poll() is None:
            if monotonic() > deadline:
                kill_group(self.pid)
            await asyncio.sleep(0.005)
        if self._killer is not None:
            self._killer.cancel()
        kill_group(self.pid)  # processes that the child has left behind
        self._reaper.forget(self.pid)
        self._read_all()
        for _, end, _ in self._pipes:
            self._loop.remove_reader(end)
            os.close(end)
        self._pipes.clear()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.gone.set()
        self._on_gone(self)

    def _take_note(self, text: str, progress: msgspec.Raw | msgspec.UnsetType) -> None:
        if self.call is None:
            return
        if text:
            self.call.note("log", text)
        if progress is not msgspec.UNSET:
            self.call.save(bytes(progress))

    def _read_all(self) -> None:
        for place in range(len(self._pipes)):
            while self._read(place):
                continue

    def _read(self, place: int) -> bool:
        """Reads some of the child's output. Returns True if there may be more."""
        stream, end, decoder = self._pipes[place]
        try:
            data = os.read(end, READ)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(end)
            return False
        text = decoder.decode(data)
        if self.call is not None:
            self.call.note(stream, text)
        elif text.strip():
            log.info(
                "output of a process for functions, outside of a call",
                process=self.pid,
                stream=stream,
                text=text.strip(),
            )
        return len(data) == READ


class ProcessPool:
    """Has as many children as the worker has slots."""

    def __init__(self, spec: str, size: int, take: Take, events: PoolEvents, now: Now) -> None:
        self._spec = spec
        self._size = size
        self._take = take
        self._events = events
        self._now = now
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._starts: set[asyncio.Task[None]] = set()
        self._failures = 0  # children that failed to become ready since the last one that did
        self._owed = 0  # slots of dead children, returned when the replacement is ready: no call can begin before
        self._is_stopping = False
        self._is_ready = asyncio.Event()
        self._reaper: Reaper

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children]

    async def start(self) -> None:
        """Returns when the first child can take calls. The worker must not poll before."""
        self._reaper = Reaper()
        await asyncio.gather(*(self._start_child() for _ in range(self._size)))
        await self._is_ready.wait()

    async def _start_child(self, after_seconds: float = 0.0) -> None:
        if after_seconds:
            await asyncio.sleep(after_seconds)
        child = ChildProcess(self._spec, self._reaper, self._ready, self._done, self._gone)
        try:
            await child.start()
        except OSError as error:
            log.error("a process for functions could not be started and will be tried again", error=str(error))
            self._replace()
            return
        self._children.add(child)

    def _replace(self) -> None:
        self._failures += 1
        pause = min(0.05 * 2 ** (self._failures - 1), LONGEST_BACKOFF_SECONDS) if self._failures > 1 else 0.0
        task = asyncio.get_running_loop().create_task(self._start_child(pause))
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    def _ready(self, child: ChildProcess) -> None:
        self._failures = 0
        self._is_ready.set()
        self._idle.append(child)
        if self._owed:
            self._owed -= 1
            self._events.on_closed(1)
        self._events.on_ready()

    def open(self, most: int, waiting: int) -> int:
        """An open slot is a child that has a call. The child takes its next call itself; without one, it is idle."""
        opened = 0
        while opened < most and self._idle and self._begin(self._idle[-1]):
            self._idle.pop()
            opened += 1
        return opened

    def _begin(self, child: ChildProcess) -> bool:
        call = self._take()
        if call is not None:
            call.started_at = self._now()
            child.begin(call)
        return call is not None

    def _done(self, child: ChildProcess, ended: Ended) -> None:
        call, child.call = child.call, None
        if call is not None:
            self._events.on_ends([(call, ended)])
        if child.is_doomed:
            return  # its slot comes back with its replacement
        if not self._begin(child):
            self._idle.append(child)
            self._events.on_closed(1)

    def _gone(self, child: ChildProcess) -> None:
        self._children.discard(child)
        had_slot = child not in self._idle and child.was_ready
        if child in self._idle:
            self._idle.remove(child)
        call, child.call = child.call, None
        if not self._is_stopping:
            if not child.was_ready:
                log.error("a process for functions did not start", app=self._spec, ended=child.how_it_ended())
            elif not child.is_doomed:
                log.warning("a process for functions died and is replaced", ended=child.how_it_ended())
            self._replace()
        if call is not None:
            message = f"its process {child.how_it_ended()}"
            self._events.on_ends([(call, end_of(call, "function_error", message, self._now()))])
        if had_slot:
            self._owed += 1

    def stop_call(self, call: Call) -> bool:
        for child in self._children:
            if child.call is call:
                child.stop()
        return True

    async def stop(self) -> None:
        self._is_stopping = True
        for task in list(self._starts):
            task.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        children = list(self._children)
        for child in children:
            child.kill()
        for child in children:
            await child.gone.wait()
        await asyncio.get_running_loop().run_in_executor(None, self._reaper.close)
