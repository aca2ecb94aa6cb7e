"""The protocol between a node and a supervisor. Both sides import this module, so it uses only the standard library.

The node sends one request, prefixed with its length in four bytes, and then orders of one byte each. The supervisor
replies with lines: Ready and then Ended, or Refused at any point before the script's program runs. It closes the socket
after it has removed the private folder.
"""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

GO = b"g"
TERMINATE = b"t"
LENGTH = struct.Struct("!I")


class Request(NamedTuple):
    argv: list[str]  # the supervisor appends the path of the script, if there is one
    script: str | None
    env: dict[str, str]
    cwd: str  # empty: the private folder
    folder: str  # the private folder is created in it
    cpu_seconds: int
    memory_bytes: int
    file_bytes: int
    open_files: int
    processes: int


class Ready(NamedTuple):
    """Everything is prepared; the script starts when the node sends GO."""

    supervisor: int  # the supervisor's process id


class Refused(NamedTuple):
    """The script was not started."""

    exit_code: int  # as in a shell: 127 no such program, 126 can't be run
    message: str


class Ended(NamedTuple):
    """The script has ended and none of its processes is left."""

    status: int  # as returned by wait()
    cpu_seconds: float
    limit: str  # the limit for which the supervisor killed the script: memory, processes, or empty for none


Answer = Ready | Refused | Ended
_KINDS: dict[str, type[Answer]] = {kind.__name__: kind for kind in (Ready, Refused, Ended)}


def pack(request: Request) -> bytes:
    data = json.dumps(request).encode()
    return LENGTH.pack(len(data)) + data


def unpack(data: bytes) -> Request:
    return Request(*json.loads(data))


def to_line(answer: Answer) -> bytes:
    return json.dumps([type(answer).__name__, *answer]).encode() + b"\n"


def from_line(line: bytes) -> Answer:
    kind, *values = json.loads(line)
    return _KINDS[kind](*values)
