"""For tests of notices: attempts, a mail server on loopback, and a network that is not there."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from duetime.domain.job import NoticeJob
from duetime.domain.payloads import Notice
from duetime.executors.notice.executor import Channel
from duetime.ports.executor import Attempt
from samples import claim_of


def notice_attempt(*channels: str, tenant: str = "acme", timeout_seconds: float = 60.0, **fields: str) -> Attempt:
    notice = Notice(channels or ("ops",), **{"title": "Late", "body": "3 jobs are late.", **fields})  # type: ignore[arg-type]
    job = NoticeJob(name=notice.title, schedule="immediate", timeout_seconds=timeout_seconds, payload=notice)
    return Attempt(claim_of(job, tenant=tenant), notice)


class Channels:
    """Finds channels by tenant and name."""

    def __init__(self, **channels: Channel) -> None:
        self.known = {("acme", name): channel for name, channel in channels.items()}

    async def __call__(self, tenant: str, name: str) -> Channel | None:
        return self.known.get((tenant, name))


class MailServer:
    """Takes mail without a password. `letters`: what it got, each with its envelope."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.letters: list[str] = []
        self.greeted_as: list[str] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        envelope = ""
        while line := (await reader.readline()).decode():
            word = line[:4].upper()
            if word == "DATA":
                writer.write(b"354 go on\r\n")
                letter = (await reader.readuntil(b"\r\n.\r\n")).decode()
                self.letters.append(envelope + letter)
                envelope = ""
            if word in ("EHLO", "HELO"):
                self.greeted_as.append(line.split()[1])
            if word in ("MAIL", "RCPT"):
                envelope += line
            writer.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
            if word == "QUIT":
                break
        writer.close()
