"""The protocol between a node, the fork server for SQLite statements and its children.

Messages are JSON, prefixed with their length. The node sends one request and, after Opened, one byte: GO. The child
replies with Opened, then with Result or Problem. The fork server adds Died if the child failed or was killed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from duetime.domain.execution import ErrorType

GO = b"g"
ASK_TO_END = b"t"
LENGTH = struct.Struct("!I")


class Request(msgspec.Struct, frozen=True):
    """One statement on one file. `folder`: the folder of all tenants; the file is in `folder`/`tenant`."""

    folder: str
    tenant: str
    name: str
    mode: Literal["ro", "rw", "rwc"]
    statement: str
    parameters: list[Any]
    seconds: float  # remaining until the deadline
    timeout_seconds: float  # the job's timeout, for messages
    rows: int
    bytes: int
    file_bytes: int
    memory_bytes: int


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The statement is prepared, and runs when the node sends GO."""


class Result(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`text`: the kept part of the result, as JSON."""

    row_count: int
    text: str


class Problem(msgspec.Struct, frozen=True, array_like=True, tag=2):
    error_type: ErrorType
    message: str


class Died(msgspec.Struct, frozen=True, array_like=True, tag=3):
    status: int  # as returned by wait()


Reply = Opened | Result | Problem | Died
reply_of: Callable[[bytes], Reply] = msgspec.json.Decoder(Reply).decode
request_of = msgspec.json.Decoder(Request).decode


def frame(message: Request | Reply) -> bytes:
    data = msgspec.json.encode(message)
    return LENGTH.pack(len(data)) + data
