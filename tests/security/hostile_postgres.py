"""A PostgreSQL server of a hostile tenant: it follows the protocol only in part."""

from __future__ import annotations

import socket
import struct
import threading
from base64 import b64encode
from contextlib import suppress

SSL_REQUEST = struct.pack("!I", 80877103)
STATUS = {"server_version": "15.0", "client_encoding": "UTF8", "integer_datetimes": "on", "TimeZone": "UTC"}
NULL_ROW = b"\0\x01\xff\xff\xff\xff"
INT8, TEXT, BOOL = 20, 25, 16


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def row(*values: bytes | None) -> bytes:
    fields = (struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values)
    return message(b"D", struct.pack("!H", len(values)) + b"".join(fields))


def columns(*types: int) -> bytes:
    described = b"".join(b"x\0" + struct.pack("!IhIhih", 0, 0, type_, -1, -1, 0) for type_ in types)
    return message(b"T", struct.pack("!H", len(types)) + described)


class HostileServer:
    """`types`: of the columns of each statement except the node's own. `answer`: sent when that is executed.

    `iterations`: requested in the handshake; None: no password is requested. `status`: the parameters it reports.
    """

    def __init__(
        self,
        answer: bytes = b"",
        types: tuple[int, ...] = (TEXT,),
        iterations: int | None = None,
        status: dict[str, str] | None = None,
    ) -> None:
        self._answer, self._types, self._iterations = answer, types, iterations
        self._status = {**STATUS, **(status or {})}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://me:password@127.0.0.1:{self._listener.getsockname()[1]}/db?sslmode=disable"
        self.proofs = 0  # how often a client has worked out the hash of its password
        self.parsed: list[str] = []
        self.bound: list[bytes] = []  # the parameters of statements that are not the node's own, and their formats
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(caller,), daemon=True).start()

    def _talk(self, caller: socket.socket) -> None:
        with suppress(OSError, EOFError), caller, caller.makefile("rb") as file:
            size = int.from_bytes(_exactly(file, 4))
            while _exactly(file, size - 4) == SSL_REQUEST:
                caller.sendall(b"N")
                size = int.from_bytes(_exactly(file, 4))
            if self._iterations is not None:
                self._shake_hands(caller, file)
            reported = (message(b"S", f"{key}\0{value}\0".encode()) for key, value in self._status.items())
            caller.sendall(message(b"R", struct.pack("!I", 0)) + b"".join(reported))
            caller.sendall(message(b"K", struct.pack("!II", 1, 2)) + message(b"Z", b"I"))
            self._answer_all(caller, file)

    def _shake_hands(self, caller: socket.socket, file: object) -> None:
        caller.sendall(message(b"R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0"))
        _, first = _read(file)
        nonce = first.partition(b"r=")[2]
        asked = b"r=" + nonce + b"abcd,s=" + b64encode(b"salt" * 4) + b",i=%d" % (self._iterations or 0)
        caller.sendall(message(b"R", struct.pack("!I", 11) + asked))
        _read(file)
        self.proofs += 1

    def _answer_all(self, caller: socket.socket, file: object) -> None:
        query, state = "", b"I"
        while True:
            kind, body = _read(file)
            match kind:
                case b"Q":
                    state = b"T" if body.startswith(b"BEGIN") else b"I" if body.startswith(b"COMMIT") else state
                    caller.sendall(message(b"C", b"SET\0") + message(b"Z", state))
                case b"P":
                    query = body.split(b"\0")[1].decode()
                    self.parsed.append(query)
                    caller.sendall(message(b"1"))
                case b"D":
                    wanted = (TEXT,) if "$1" in query else ()
                    described = message(b"t", struct.pack(f"!H{len(wanted)}I", len(wanted), *wanted))
                    caller.sendall(described + columns(*_own(query)[0] or self._types))
                case b"B":
                    if _own(query)[0] is None:
                        self.bound.append(body)
                    caller.sendall(message(b"2"))
                case b"E":
                    answer = _own(query)[1]
                    caller.sendall((self._answer if answer is None else answer) + message(b"C", b"SELECT 1\0"))
                case b"S":
                    caller.sendall(message(b"Z", state))
                case b"C":
                    caller.sendall(message(b"3"))
                case b"X":
                    return


def _own(query: str) -> tuple[tuple[int, ...] | None, bytes | None]:
    """Returns the types and rows for the node's own queries."""
    if "shard_epochs" in query:
        return (BOOL,), row(b"\0")
    if "min(rolname" in query:
        return (TEXT,), row(None)
    if "statement_timeout" in query:
        return (INT8,), row(bytes(8))
    return None, None


def _read(file: object) -> tuple[bytes, bytes]:
    head = _exactly(file, 5)
    return head[:1], _exactly(file, int.from_bytes(head[1:]) - 4)


def _exactly(file: object, size: int) -> bytes:
    data: bytes = file.read(size)  # type: ignore[attr-defined]
    if len(data) < size:
        raise EOFError
    return data
