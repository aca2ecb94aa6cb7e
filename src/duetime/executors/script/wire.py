"""What node and supervisor say to each other. Both sides import this, so it knows only the standard library.

The node sends one request, its length in four bytes before it, and then single bytes. The supervisor answers with
lines: ready, then ended; or refused, until the script's program runs. It closes the socket when its private folder is
removed.
"""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

GO = b"g"
TERMINATE = b"t"
LENGTH = struct.Struct("!I")


class Request(NamedTuple):
    argv: list[str]  # the path of the script is added, if there is one
    script: str | None
    env: dict[str, str]
    cwd: str  # empty: the private folder
    folder: str  # where to make the private one
    cpu_seconds: int
    memory_bytes: int
    file_bytes: int
    open_files: int
    processes: int


class Ready(NamedTuple):
    """All is prepared; the script starts at the word."""

    supervisor: int  # its process id


class Refused(NamedTuple):
    """The script was not started."""

    exit_code: int  # as a shell says it: 127 no such program, 126 can't be run
    message: str


class Ended(NamedTuple):
    """The script is over and no process of it is left."""

    status: int  # as wait() says it
    cpu_seconds: float
    limit: str  # the watched limit that it was ended for: memory, processes, or empty


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
