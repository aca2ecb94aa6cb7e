"""Clients that write bytes to a node, complete requests or not, and read the responses."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from patience import PATIENCE_SECONDS

MEGABYTE = 1024 * 1024


class Ending(NamedTuple):
    """The end of a connection: how many bytes were sent, and all bytes of the server."""

    sent: int
    said: bytes

    @property
    def status(self) -> int:
        return int(self.said.split(b" ", 2)[1]) if self.said else 0

    @property
    def problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = json.loads(self.said.partition(b"\r\n\r\n")[2])
        return problem


def connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    """Opens a connection to a node on this machine, from any loopback address."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (address, 0))


def send_until_closed(line: socket.socket, pieces: Iterable[bytes]) -> Ending:
    """Sends until the server stops reading, then reads until it closes the connection."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):  # closed: the server reads no more
        for piece in pieces:
            line.sendall(piece)
            sent += len(piece)
    return Ending(sent, read_to_the_end(line))


def read_to_the_end(line: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionResetError):  # closed with a reset
        while piece := line.recv(65_536):
            said += piece
    return said


def is_closed(line: socket.socket) -> bool:
    """Returns whether the server has closed this connection, without waiting."""
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        line.settimeout(PATIENCE_SECONDS)


def forget_peak_memory(process_id: int) -> int:
    """Resets the peak memory of a process to its current memory. Returns that, in bytes."""
    Path(f"/proc/{process_id}/clear_refs").write_text("5")
    return peak_memory(process_id)


def peak_memory(process_id: int) -> int:
    """Returns the peak memory of a process, in bytes."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
