"""A supervisor: starts one script, watches it, and kills all of its processes. A process forked by the fork server.

It keeps running if the fork server dies. If the node dies, its socket closes, and it ends the script. It is the
sub-reaper of the script's processes: none of them can leave it, and no other process waits for them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable

from duetime.executors.script.folders import PrivateFolder
from duetime.executors.script.launch import NOT_RUNNABLE, Launch, launch, process_ceiling
from duetime.executors.script.system import (
    LINUX,
    become_subreaper,
    descendants,
    proportional_bytes,
    receive_exactly,
    resident_bytes,
)
from duetime.executors.script.users import end_all_of
from duetime.executors.script.wire import GO, LENGTH, TERMINATE, Answer, Ended, Ready, Refused, Request, to_line, unpack

GRACE_SECONDS = 2.0  # from SIGTERM to SIGKILL
_WATCH_SECONDS = 0.1
_WATCH_SHARE = 20  # slow checks are made less often: checking takes at most 1/20 of the time


class ScriptSupervisor:
    """`user`: the user id that the script runs as; None: the supervisor's own."""

    def __init__(self, control: socket.socket, outputs: tuple[int, int], user: int | None, wakes: int) -> None:
        self._control = control
        self._outputs = outputs
        self._user = user
        self._wakes = wakes  # readable when a child has ended
        self._script = 0  # the script's process id
        self._status: int | None = None
        self._cpu_seconds = 0.0
        self._limit = ""
        self._deadline: float | None = None  # for the script's processes to end, once TERMINATE was received

    def run(self) -> None:
        request = self._receive()
        if request is None:
            return
        become_subreaper()
        try:
            folder = PrivateFolder(request.folder)
        except OSError as problem:
            message = (
                f"No private folder can be made in '{request.folder}': {problem.strerror}; name another for scripts."
            )
            self._tell(Refused(NOT_RUNNABLE, message))
            return
        try:
            self._run_in(folder, request)
        finally:
            folder.remove()

    def _run_in(self, folder: PrivateFolder, request: Request) -> None:
        try:
            request = self._prepare(folder, request)
            ceiling = process_ceiling(self._user, request.processes)
        except (OSError, ValueError) as problem:
            self._tell(Refused(NOT_RUNNABLE, f"The script can't be prepared: {problem}."))
            return
        self._tell(Ready(os.getpid()))
        if self._order() != GO:
            return
        try:
            self._script = launch(request, folder.path, self._user, self._outputs, ceiling)
        except Launch as problem:
            self._tell(problem.refused)
            return
        except OSError as problem:  # no more processes or descriptors available
            self._tell(Refused(NOT_RUNNABLE, f"The script can't be started: {problem}."))
            return
        for output in self._outputs:
            os.close(output)
        self._watch(request)
        self._end_all()
        assert self._status is not None  # nothing is left, so the script itself has been waited for
        self._tell(Ended(self._status, self._cpu_seconds, self._limit))

    def _prepare(self, folder: PrivateFolder, request: Request) -> Request:
        argv, env = request.argv, {"HOME": folder.path, "TMPDIR": folder.path} | request.env
        if request.script is not None:
            argv = [*argv, folder.write_script(request.script, self._user)]
        if self._user is not None:
            folder.give_to(self._user)
            for output in self._outputs:
                os.fchown(output, self._user, self._user)  # otherwise the script could not open /dev/stderr
        return request._replace(argv=argv, env=env)

    def _watch(self, request: Request) -> None:
        """Waits until the script has ended, exceeds a limit, or the node has ended.

        After TERMINATE, waits until all of the script's processes have ended or the grace period is over.
        """
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        look_at = time.monotonic() + _WATCH_SECONDS
        while not self._is_over():
            now = time.monotonic()
            until = look_at if self._deadline is None else min(look_at, self._deadline)
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - now) * 1000 + 1)}
            if self._wakes in ready:
                os.read(self._wakes, 4096)
            if self._control.fileno() in ready and not self._obey():
                return
            if time.monotonic() >= look_at:
                look_at = self._look(request)
                if self._limit:
                    return

    def _is_over(self) -> bool:
        nothing_left = self._reap()
        if self._deadline is None:
            return self._status is not None
        return nothing_left or time.monotonic() >= self._deadline

    def _obey(self) -> bool:
        """Handles an order. Returns False if the node has ended: the script must be killed now."""
        order = self._order()
        if order == TERMINATE and self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
            self._ask_to_end()
        return order != b""

    def _ask_to_end(self) -> None:
        """Sends SIGTERM to the script's process group at once, and to each descendant that has left the group."""
        elsewhere = [pid for pid in descendants(os.getpid()) if _group(pid) != self._script]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._script, signal.SIGTERM)
        _signal(elsewhere, signal.SIGTERM)

    def _order(self) -> bytes:
        """Receives an order. Returns empty bytes if the node has ended."""
        try:
            return self._control.recv(1)
        except ConnectionError:
            return b""

    def _look(self, request: Request) -> float:
        """Checks the limits on all of the script's processes together. Returns the time of the next check."""
        began = time.process_time()  # without the time that we waited for the processor
        pids = descendants(os.getpid())
        if len(pids) > request.processes:
            self._limit = "processes"
        elif resident_bytes(pids) > request.memory_bytes and proportional_bytes(pids) > request.memory_bytes:
            self._limit = "memory"
        took = time.process_time() - began
        return time.monotonic() + max(_WATCH_SECONDS, took * _WATCH_SHARE)

    def _reap(self) -> bool:
        """Reaps all children that have ended. Returns True if no child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._script:
                self._status = status
                self._cpu_seconds = usage.ru_utime + usage.ru_stime

    def _end_all(self) -> None:
        if not LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for zombies
                os.killpg(self._script, signal.SIGKILL)
        pause = 0.0005
        while not self._reap():
            if self._user is None or not end_all_of(self._user):
                end_descendants()
            time.sleep(pause)
            pause = min(0.05, 2 * pause)

    def _receive(self) -> Request | None:
        """Receives the request. Returns None if the node closed the socket before it was complete."""
        head = receive_exactly(self._control, LENGTH.size)
        body = receive_exactly(self._control, LENGTH.unpack(head)[0]) if head else b""
        return unpack(body) if body else None

    def _tell(self, answer: Answer) -> None:
        with contextlib.suppress(OSError):  # the node has ended, so no process reads the reply
            self._control.sendall(to_line(answer))


def end_descendants(spared: frozenset[int] = frozenset()) -> None:
    """Stops all descendants of this process until no new one appears, then kills them, so a fork bomb can't outrun it.

    Some may still be missed; the caller repeats this until there is no child left to wait for.
    """
    stopped: set[int] = set()
    while fresh := set(descendants(os.getpid(), spared)) - stopped:
        _signal(fresh, signal.SIGSTOP)
        stopped |= fresh
    _signal(stopped, signal.SIGKILL)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it has ended by itself
        except PermissionError as problem:
            sys.stderr.write(f"process {pid} of a script can't be ended: {problem}\n")
