"""The messages of a PostgreSQL server, before the driver sees them: how many, how costly, and of which types.

The driver runs on the event loop and trusts its server. A hostile one could ask for a password hash of minutes, send a
million rows where two were asked for, or claim an array of two thousand million items in twelve bytes. So messages are
counted here, by kind, and a server that sends more than a statement can need is cut off. The driver gets values of
simple types only: any other type is announced to it as `unknown`, which it neither looks up nor decodes. The server
then sends and takes text, and what is in the text is read by `arrays.py`. Does no I/O.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from duetime.executors.sql.types import SIMPLE, UNKNOWN

MOST_ITERATIONS = 32_768  # of SCRAM-SHA-256, in one handshake: eight times PostgreSQL's default, some 20 ms
MOST_COLUMNS = 1664  # PostgreSQL's own limit
MOST_NOTICES = 1000  # of a statement, that are written to the log; more are passed over
MOST_PASSED_OVER = 100_000
MOST_OTHERS = 1000  # of any other kind, for a statement
SPARE_ROWS = 8  # beside the rows that are kept: of the node's own questions, and of CALL
_MOST_INSPECTED = 512 * 1024
_HEADER = 5
_NAMES = {"N": "notices", "A": "notifications", "D": "rows"}
_ITERATIONS = re.compile(rb",i=([0-9]+)")
_SASL_CONTINUE = 11
_COLUMN = struct.Struct("!IhIhih")  # after the name: table, place, type, size, modifier, format
_UTF8 = ("utf8", "utf-8", "unicode")


class Unfit(Exception):
    """Why a server is cut off, and what to do, as the rest of a sentence."""


class Tally:
    """What came for one statement. `columns` and `parameters`: the types of the statement as the server has them."""

    def __init__(self, rows: int) -> None:
        self._most_rows = rows + SPARE_ROWS
        self._counts: dict[int, int] = {}
        self.columns: tuple[int, ...] = ()
        self.parameters: tuple[int, ...] = ()

    def rewind(self) -> None:
        self._counts.clear()

    def add(self, kind: int) -> bool:
        """Counts a message. False: the driver may not see it. Raises Unfit if it is one too many."""
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        match kind:
            case 0x44:  # D: a row
                if count > self._most_rows:
                    raise Unfit("the server sent more rows than were asked for. Check what answers at that address")
            case 0x4E | 0x41:  # N, A: a notice, a notification
                if count > MOST_PASSED_OVER:
                    raise Unfit(f"the server sent more than {MOST_PASSED_OVER} notices for one statement. Raise fewer")
                return kind == 0x4E and count <= MOST_NOTICES
            case _ if count > MOST_OTHERS:
                raise Unfit(
                    f"the server sent more than {MOST_OTHERS} messages of the kind {chr(kind)!r} for one statement. "
                    "Check what answers at that address"
                )
        return True


class Messages:
    """Of one connection: bytes as they come go in, bytes that the driver may see come out."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._held = bytearray()
        self._needed = 0  # bytes, before it is worth another look
        self._left = 0  # bytes of the message that is passing
        self._is_passed = True  # whether the driver gets it
        self._iterations = 0

    def feed(self, data: bytes) -> bytes:
        """Returns what the driver may see. Raises Unfit: cut the connection."""
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
        """Returns the bytes of the message that begins here; None if its head is not whole."""
        if len(data) - at < _HEADER:
            return None
        length = int.from_bytes(data[at + 1 : at + _HEADER])
        if length < _HEADER - 1 or (data[at] in _INSPECTED and length > _MOST_INSPECTED):
            raise Unfit("the server does not keep to the protocol. Check what answers at that address")
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
            raise Unfit("the server does not keep to the protocol. Check what answers at that address") from None
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
    """A description of columns with types that the driver knows, and the types that they have."""
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
