"""A child process of a worker: reads assignments from its socket, and runs their sync functions one by one.

Both sides send lines of JSON. Printed output goes to pipes that the worker reads. `Done` is sent after they are
flushed, so the worker finds all output of a call before it sees the call's end.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import signal
import socket
import sys
import threading

import msgspec

from duetime.domain.work import Assignment, Ended, Note
from duetime.functions.calls import Call, perform, wall_clock
from duetime.functions.context import logging_routed
from duetime.functions.loading import load_app
from duetime.functions.registry import Function

# Run with `python -c`, because only the worker's own sys.path leads to this module.
BOOT = "import sys; sys.path[:] = sys.argv[4:]; from duetime.functions.child import main; main()"
PR_SET_PDEATHSIG = 1


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The app is imported."""


class Said(msgspec.Struct, frozen=True, array_like=True, tag=1):
    notes: list[Note]


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """`level` and `trace` as in `Call`."""

    ended: Ended
    level: int
    trace: str


FromChild = Ready | Said | Done


def die_with(parent: int) -> None:
    """Ties this process to its parent. On Linux the kernel kills it when the parent dies; elsewhere the reaper does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl
        os._exit(1)


class Child:
    def __init__(self, spec: str, connection: socket.socket) -> None:
        self._registry = load_app(spec).registry
        self._connection = connection
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()  # a function may log from its own threads

    def serve(self) -> None:
        decoder = msgspec.json.Decoder(Assignment)
        self._send(Ready())
        with logging_routed():
            for line in self._connection.makefile("rb"):
                assignment = decoder.decode(line)
                call = Call(assignment, self._function(assignment.function), self._say)
                ended = contextvars.copy_context().run(perform, call, wall_clock)
                for stream in (sys.stdout, sys.stderr):
                    _flush(stream)
                self._send(Done(ended, call.level, call.trace))

    def _function(self, name: str) -> Function:
        return self._registry.get(name) or Function(name, _missing)

    def _say(self, call: Call) -> None:
        self._send(Said(call.take_notes()))

    def _send(self, message: FromChild) -> None:
        with self._lock:
            self._connection.sendall(self._encoder.encode(message) + b"\n")


def _missing(*_: object, **__: object) -> None:
    raise LookupError(
        "the app has no function of this name in a child process; register it when the module is imported"
    )


def _flush(stream: object) -> None:
    try:
        stream.flush()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # a function has replaced or closed it: there is nothing to flush
        return


def main() -> None:
    parent, spec, descriptor = sys.argv[1:4]
    die_with(int(parent))
    Child(spec, socket.socket(fileno=int(descriptor))).serve()
