"""The messages between a node and the child process that sends one message with apprise. JSON; stdlib only."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MOST_SENT_BYTES = 65_536
MOST_REPLY_BYTES = 4096


class Order(NamedTuple):
    """What the child gets on stdin. Its arguments and environment hold nothing of this."""

    url: str
    title: str
    body: str
    type: str  # of apprise: info, success, warning, failure
    proxy_port: int
    proxy_token: str
    seconds: float  # after which the child ends itself, should the node be gone
    memory_bytes: int
    schemes: tuple[str, ...]
    ca_file: str

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class Reply(NamedTuple):
    """How it went. `refused`: what the plugin tried that no channel may do. `status`: of the last HTTP response."""

    is_sent: bool
    refused: str = ""
    problem: str = ""  # a word of this list: url, lost, tls, timeout; empty: the service refused it
    status: int | None = None

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def decode_order(data: bytes) -> Order:
    fields: dict[str, Any] = json.loads(data)
    return Order(**{**fields, "schemes": tuple(fields["schemes"])})


def decode_reply(data: bytes) -> Reply | None:
    """Returns the reply; None if the child died before, or wrote something else."""
    try:
        fields = json.loads(data)
        return Reply(
            bool(fields["is_sent"]), str(fields["refused"]), str(fields["problem"]),
            None if fields["status"] is None else int(fields["status"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None
