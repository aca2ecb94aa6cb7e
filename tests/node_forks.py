"""Starts `duetime serve` by forking a process that has imported Duetime already.

Tests start some hundred nodes, and most of what a start costs is importing. What runs in the forked process is the same
program with the same arguments, folder and environment, and it is killed, stopped and waited for like any other. Tests
of the start itself run the program instead (tests/served.py, tests/cli/test_program.py).

The tests' process talks to a *fork server*; that forks a *watcher* for each node, which forks the node and writes down
how it ended. Each ends with the one above it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import duetime.telemetry.crash

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_LONGEST_REQUEST = 1 << 20


def end_with_parent() -> None:
    """In a new process: a parent that is killed leaves nothing behind."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ForkedProcess:
    """What tests use of a `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], pid: int, ends: int) -> None:
        self.args = list(args)
        self.pid = pid
        self.returncode: int | None = None
        self._ends = ends

    def poll(self) -> int | None:
        return self._read_end(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_end(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ended, _, _ = select.select([self._ends], [], [], timeout)
            if ended:
                self.returncode = int(os.read(self._ends, 16))
                os.close(self._ends)
        return self.returncode


class ForkServer:
    """The tests' end. It is started by the first node."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def start(
        self, args: Sequence[str], folder: Path, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
    ) -> ForkedProcess:
        """Run `duetime` with these arguments, the first of them the program's name."""
        request = json.dumps({"args": list(args), "folder": str(folder), "environment": dict(environment)}).encode()
        with self._lock:
            connection = self.prepare()
            ends, ends_of_watcher = os.pipe()
            try:
                socket.send_fds(connection, [request], [out.fileno(), err.fileno(), ends_of_watcher])
            finally:
                os.close(ends_of_watcher)
            pid = int(connection.recv(16))
        return ForkedProcess(args, pid, ends)

    def prepare(self) -> socket.socket:
        """Start the fork server, unless it runs. Returns the way to it."""
        with self._lock:
            if self._socket is None:
                self._socket = self._launch()
            return self._socket

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            # It ends when this process closes its end of the pair, or is killed.
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], preexec_fn=end_with_parent)
            assert ours.recv(1), "the fork server ended as it started"
        return ours


def wait_for_node(requests: socket.socket) -> bool:
    """In the fork server: returns True in each new node, and False when the tests have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers are not waited for
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        if not message:
            return False
        if os.fork() == 0:
            watch(requests, *descriptors)
            become_node(json.loads(message), *descriptors[:2])
            return True
        for descriptor in descriptors:
            os.close(descriptor)


def watch(requests: socket.socket, out: int, err: int, ends: int) -> None:
    """Fork, and return in the node only."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        os.close(ends)
        return
    os.close(out)
    os.close(err)
    requests.send(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    os.write(ends, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become_node(request: dict[str, Any], out: int, err: int) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor, place in ((out, 1), (err, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.argv = request["args"]
    importlib.reload(duetime.telemetry.crash)  # the one module that reads the environment when it is imported


if __name__ == "__main__":
    import duetime.cli.main
    import duetime.cli.serve
    import duetime.node

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        requests.send(b"!")
        is_node = wait_for_node(requests)
    if is_node:
        duetime.cli.main.main()
