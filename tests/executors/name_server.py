"""A small name server for tests in their own network namespace: it serves A, AAAA and CNAME over UDP, in turn."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from ipaddress import ip_address
from types import TracebackType
from typing import Self

_A, _CNAME, _AAAA, _IN = 1, 5, 28, 1
_NO_SUCH_NAME = 3
_FLAGS = 0x8580  # a response, with authority


class NameServer:
    """`names`: the answers for each name, in turn, and then always the last one; `aliases`: names for other names."""

    def __init__(self, address: str, names: dict[str, list[list[str]]], aliases: dict[str, str]) -> None:
        self._names = names
        self._aliases = aliases
        self.asked: Counter[tuple[str, int]] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, name="name server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.sendto(b"", self._socket.getsockname())  # a close alone would not wake the thread
        self._thread.join(10)
        self._socket.close()

    def _serve(self) -> None:
        while (received := self._socket.recvfrom(4096))[0]:
            packet, sender = received
            self._socket.sendto(self._answer(packet), sender)

    def _answer(self, packet: bytes) -> bytes:
        name, end = _read_name(packet, 12)
        (kind,) = struct.unpack_from("!H", packet, end)
        records, known = self._records(name.lower(), kind)
        head = struct.pack(
            "!HHHHHH",
            *struct.unpack_from("!H", packet),
            _FLAGS | (0 if known else _NO_SUCH_NAME),
            1,
            len(records),
            0,
            0,
        )
        return head + packet[12 : end + 4] + b"".join(records)

    def _records(self, name: str, kind: int) -> tuple[list[bytes], bool]:
        records = []
        while name in self._aliases:
            records.append(_record(name, _CNAME, _write_name(self._aliases[name])))
            name = self._aliases[name]
        answers = self._names.get(name)
        if answers is None:
            return records, False
        answer = answers[min(self.asked[name, kind], len(answers) - 1)]
        self.asked[name, kind] += 1
        found = [address for address in map(ip_address, answer) if kind == (_A if address.version == 4 else _AAAA)]
        return records + [_record(name, kind, address.packed) for address in found], True


def _read_name(packet: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := packet[at]:
        labels.append(packet[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    return ".".join(labels), at + 1


def _write_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(name: str, kind: int, content: bytes) -> bytes:
    return _write_name(name) + struct.pack("!HHIH", kind, _IN, 0, len(content)) + content
