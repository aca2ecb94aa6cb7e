"""Runs `duetime` by forking a process that has imported Duetime already.

Tests start hundreds of nodes and commands, and most of a start is the import. The forked process runs the same
program with the same arguments, folder and environment, and it is killed, stopped and waited for like any other. Tests
of the start itself run the program instead (tests/cli/test_program.py).

The tests' process starts a *fork server*, which listens on a socket (tests/fork_request.py). For each request it forks
a *watcher*, which forks the command and sends back its process id, and its exit code when it ends. Each ends with the
one above it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any

import duetime.process.crash
import fork_request
from patience import PATIENCE_SECONDS

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def end_with_parent() -> None:
    """In a new process: it ends even if its parent is killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ForkedProcess:
    """The part of a `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], pid: int, connection: socket.socket) -> None:
        self.args = list(args)
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

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
            ended, _, _ = select.select([self._connection], [], [], timeout)
            if ended:
                self.returncode = int(self._connection.recv(16))
                self._connection.close()
        return self.returncode


class ForkServer:
    """The client in the tests' process. The first command starts the fork server; it ends with the tests' process."""

    def __init__(self) -> None:
        self._address: Path | None = None
        self._lock = threading.RLock()

    def start(
        self, args: Sequence[str], folder: Path, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
    ) -> ForkedProcess:
        """Runs `duetime` with these arguments, the first of them the program's name."""
        with open(os.devnull, "rb") as nothing:
            descriptors = nothing.fileno(), out.fileno(), err.fileno()
            return ForkedProcess(args, *fork_request.send(self.prepare(), args, folder, environment, descriptors))

    def run(
        self, args: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float = PATIENCE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Returns its output, as `subprocess.run` does. Kills it and raises TimeoutExpired if it takes longer."""
        with ExitStack() as stack:
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = self.start(args, folder, environment, out, err)
            try:
                code = process.wait(timeout)
            except BaseException:
                process.kill()
                process.wait()
                raise
            said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess(list(args), code, *said)

    def command(self) -> list[str]:
        """Replaces `duetime` in a command line. SIGTERM and SIGINT are passed on; SIGKILL can not be."""
        return [sys.executable, "-I", "-S", fork_request.__file__, str(self.prepare())]

    def prepare(self) -> Path:
        """Starts the fork server, unless it runs. Returns the address at which it listens."""
        with self._lock:
            if self._address is None:
                self._address = self._launch()
            return self._address

    def _launch(self) -> Path:
        folder = tempfile.mkdtemp(prefix="duetime-forks-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        address = Path(folder, "socket")
        process = subprocess.Popen(
            [sys.executable, __file__, str(address)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            preexec_fn=end_with_parent,
        )  # fmt: skip
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.read(1), "the fork server ended as it started"
        return address


fork_server = ForkServer()


def wait_for_command(requests: socket.socket) -> None:
    """Runs in the fork server: returns in each new command only."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers are not waited for
    while True:
        connection, _ = requests.accept()
        with connection:
            message, descriptors, _, _ = socket.recv_fds(connection, fork_request.LONGEST_REQUEST, 3)
            if message and os.fork() == 0:
                requests.close()
                watch(connection, descriptors)
                become_command(json.loads(message), descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)


def watch(connection: socket.socket, descriptors: Sequence[int]) -> None:
    """Forks, and returns in the command only."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        connection.close()
        return
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)  # also when the test has ended before its command


def become_command(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.argv = request["args"]
    importlib.reload(duetime.process.crash)  # the one module that reads the environment when it is imported


if __name__ == "__main__":
    import typer

    import duetime.cli.main
    import duetime.cli.serve
    import duetime.node

    # Commands import these when they run. (Pydantic is for the tests' own tools; typer and Litestar try to import it.)
    for module in (
        "typer._adapters",
        "litestar.plugins.pydantic",
        "duetime.telemetry.logs",
        "duetime.settings.loading",
        "uvloop",
    ):
        importlib.import_module(module)
    typer.main.get_command = cache(typer.main.get_command)  # typer builds all of sixty commands to run one
    typer.main.get_command(duetime.cli.main.app)
    gc.freeze()  # a collection would copy every page that the commands share
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
        requests.bind(sys.argv[1])
        requests.listen(64)
        os.write(1, b"!")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        wait_for_command(requests)
    duetime.cli.main.main()
