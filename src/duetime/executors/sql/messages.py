"""Filters the messages of a PostgreSQL server before the driver sees them: by number, cost and value types.

The driver runs on the event loop and trusts its server. A hostile server could request a password hash that takes
minutes, send a million rows where two were requested, or announce an array of two billion items in twelve bytes. So
messages are counted here, by kind, and a server that sends more than a statement can need is disconnected. The driver
gets values of simple types only. Every other type is changed to `unknown`, which the driver neither looks up nor
decodes: the server then sends and accepts text. `types.py` parses arrays in that text. Does no I/O.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from duetime.executors.sql.types import SIMPLE, UNKNOWN

MOST_ITERATIONS = 32_768  # of SCRAM-SHA-256, in one handshake: eight times PostgreSQL's default, some 20 ms
MOST_COLUMNS = 1664  # PostgreSQL's own limit
MOST_NOTICES = 1000  # notices of a statement that are written to the log; the others are skipped
MOST_PASSED_OVER = 100_000
MOST_OTHERS = 1000  # messages of each other kind, per statement
SPARE_ROWS = 8  # besides the rows that are kept: rows of the node's own queries, and of CALL
_MOST_INSPECTED = 512 * 1024
_HEADER = 5
_NAMES = {"N": "notices", "A": "notifications", "D": "rows"}
_ITERATIONS = re.compile(rb",i=([0-9]+)")
_SASL_CONTINUE = 11
_COLUMN = struct.Struct("!IhIhih")  # after the name: table, place, type, size, modifier, format
_UTF8 = ("utf8", "utf-8", "unicode")


class Unfit(Exception):
    """The server must be disconnected. The message says why and what to do, as the rest of a sentence."""


class Tally:
    """Counts the messages of one statement. `columns` and `parameters`: the types that the server announced."""

    def __init__(self, rows: int) -> None:
        self._most_rows = rows + SPARE_ROWS
        self._counts: dict[int, int] = {}
        self.columns: tuple[int, ...] = ()
        self.parameters: tuple[int, ...] = ()

    def rewind(self) -> None:
        self._counts.clear()

    def add(self, kind: int) -> bool:
        """Counts a message. Returns False if the driver must not see it. Raises Unfit if there are too many."""
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        match kind:
            case 0x44:  # D: a row
                if count > self._most_rows:
                    raise Unfit("the server sent more rows than were requested. Check the server at that address")
            case 0x4E | 0x41:  # N, A: a notice, a notification
                if count > MOST_PASSED_OVER:
                    raise Unfit(f"the server sent more than {MOST_PASSED_OVER} notices for one statement. Raise fewer")
                return kind == 0x4E and count <= MOST_NOTICES
            case _ if count > MOST_OTHERS:
                raise Unfit(
                    f"the server sent more than {MOST_OTHERS} messages of the kind {chr(kind)!r} for one statement. "
                    "Check the server at that address"
                )
        return True


class Messages:
    """The message filter of one connection: takes received bytes, and returns the bytes that the driver may see."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._held = bytearray()
        self._needed = 0  # bytes that must be held before the message can be handled
        self._left = 0  # remaining bytes of the current message
        self._is_passed = True  # whether the driver gets the current message
        self._iterations = 0

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes that the driver may see. Raises Unfit if the connection must be closed."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return b""
            data = bytes(self._held)
            self._held.clear()
        return b"".join(self._parts(data))

    def _parts(self, data: bytes) -> Iterator[bytes]:
        at, end = 0, len(data)
        while at < end:
            if self._left:
                size = min(self._left, end - at)
                if self._is_passed:
                    yield data[at : at + size]
                self._left -= size
                at += size
                continue
            whole = self._size(data, at)
            is_inspected = whole is not None and data[at] in _INSPECTED
            if whole is None or (is_inspected and end - at < whole):
                self._held += data[at:]
                self._needed = whole or _HEADER
                return
            self._is_passed = self._tally.add(data[at])
            if is_inspected:
                yield self._inspected(data[at : at + whole])
                at += whole
            else:
                self._left = whole

    def _size(self, data: bytes, at: int) -> int | None:
        """Returns the size of the message that begins at `at`; None if its header is incomplete.

        Raises Unfit if the size is invalid.
        """
        if len(data) - at < _HEADER:
            return None
        length = int.from_bytes(data[at + 1 : at + _HEADER])
        if length < _HEADER - 1 or (data[at] in _INSPECTED and length > _MOST_INSPECTED):
            raise Unfit("the server does not keep to the protocol. Check the server at that address")
        return length + 1

    def _inspected(self, message: bytes) -> bytes:
        try:
            match message[:1]:
                case b"R":
                    self._check_iterations(message)
                case b"S":
                    _check_encoding(message)
                case b"T":
                    message, self._tally.columns = _simple_columns(message)
                case b"t":
                    message, self._tally.parameters = _simple_parameters(message)
                    self._tally.columns = ()
        except (struct.error, IndexError, ValueError):
            raise Unfit("the server does not keep to the protocol. Check the server at that address") from None
        return message

    def _check_iterations(self, message: bytes) -> None:
        if int.from_bytes(message[_HEADER : _HEADER + 4]) != _SASL_CONTINUE:
            return
        for digits in _ITERATIONS.findall(message):
            self._iterations += int(digits) if len(digits) < 10 else MOST_ITERATIONS + 1
        if self._iterations > MOST_ITERATIONS:
            raise Unfit(
                f"the server asks for more than {MOST_ITERATIONS} iterations of SCRAM-SHA-256. Set scram_iterations "
                "to that or less there, and the user's password anew"
            )


def _check_encoding(message: bytes) -> None:
    name, value, _ = message[_HEADER:].split(b"\0", 2)
    if name.lower() == b"client_encoding" and value.decode("ascii", "replace").lower() not in _UTF8:
        raise Unfit("the client_encoding was set to another than UTF8. Leave it as it is")


def _simple_columns(message: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Returns a RowDescription with simple types only, and the original types of the columns."""
    (count,) = struct.unpack_from("!H", message, _HEADER)
    if count > MOST_COLUMNS:
        raise Unfit(f"the result has more than {MOST_COLUMNS} columns. Select fewer")
    rewritten, at, types = bytearray(message), _HEADER + 2, []
    for _ in range(count):
        at = message.index(b"\0", at) + 1
        table, place, type_, *rest = _COLUMN.unpack_from(message, at)
        _COLUMN.pack_into(rewritten, at, table, place, type_ if type_ in SIMPLE else UNKNOWN, *rest)
        types.append(type_)
        at += _COLUMN.size
    return bytes(rewritten), tuple(types)


def _simple_parameters(message: bytes) -> tuple[bytes, tuple[int, ...]]:
    (count,) = struct.unpack_from("!H", message, _HEADER)
    types = struct.unpack_from(f"!{count}I", message, _HEADER + 2)
    simple = [type_ if type_ in SIMPLE else UNKNOWN for type_ in types]
    return message[: _HEADER + 2] + struct.pack(f"!{count}I", *simple), types


_INSPECTED = frozenset(b"RSTt")
