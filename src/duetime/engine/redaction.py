"""Redacts the results and logs of attempts without blocking the event loop.

Short work is done at once. Long work goes to a thread, one piece at a time, round-robin by tenant, so that a tenant
with large secrets or long texts does not delay other tenants. `domain.redaction` holds the limits of the work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from duetime.domain.execution import Claim
from duetime.domain.payloads import Payload
from duetime.domain.redaction import Redactor, StreamRedactor, list_secrets, size_of_secrets
from duetime.domain.secrets import has_secrets
from duetime.engine.turn_gate import TurnGate
from duetime.ports.logs import LogWriter, Stream
from duetime.ports.vault import DecryptionFailed

SHORT = 4096  # characters: longer text goes to the thread
AT_ONCE = 16_384  # characters redacted directly in one iteration of the event loop; the thread does the rest
LONGEST_PART = 65_536  # characters of a log that the thread redacts in one turn
MOST_WAITING = 4 * 1024 * 1024  # characters of one attempt's log that wait for the thread
MOST_PIECES = 500_000  # in the redactors that are kept: some 50 MB

_T = TypeVar("_T")


class Redaction:
    """One per node: the attempt runner and the worker gateway share it, and so the thread and its turns."""

    def __init__(self) -> None:
        self._gate = TurnGate(1)
        self._left = AT_ONCE

    async def build(self, tenant: str, size: int, plain: Payload) -> Redactor:
        """Returns a redactor for the secrets of a payload. `size`: the payload's `size_of_secrets`."""
        return await self.run(tenant, size, lambda: Redactor(list_secrets(plain)))

    async def redact(self, tenant: str, redactor: Redactor | None, text: str) -> str:
        if redactor is None:
            return text
        return await self.run(tenant, len(text), lambda: redactor.redact(text))

    async def run(self, tenant: str, characters: int, work: Callable[[], _T]) -> _T:
        """Does work whose cost grows with `characters`: at once if that is little, otherwise in the thread."""
        if self.may_work_now(characters):
            return work()
        async with self._gate.turn(tenant):
            return await asyncio.to_thread(work)

    def may_work_now(self, characters: int) -> bool:
        """Takes `characters` from the budget of this event loop iteration; returns False if that is too much."""
        if characters > SHORT or characters > self._left:
            return False
        if self._left == AT_ONCE:
            asyncio.get_running_loop().call_soon(self._refill)
        self._left -= characters
        return True

    def _refill(self) -> None:
        self._left = AT_ONCE


class KeptRedactors:
    """Redactors of executions that workers report on: the most recently used, up to MOST_PIECES in total."""

    def __init__(self, redaction: Redaction, decrypt: Callable[[Claim], Payload]) -> None:
        self._redaction = redaction
        self._decrypt = decrypt
        self._kept: OrderedDict[tuple[str, int], Redactor] = OrderedDict()  # by execution id and token
        self._size = 0

    async def of(self, claim: Claim) -> Redactor | None:
        """Returns the redactor of a claim; None if it has no secrets, or if this node can't decrypt them."""
        if not has_secrets(claim.spec.payload):
            return None
        key = (claim.execution_id, claim.token)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        try:
            plain = self._decrypt(claim)
        except DecryptionFailed:
            return None  # then this node could not hand out the claim either
        built = await self._redaction.build(claim.tenant, size_of_secrets(claim.spec.payload), plain)
        self.drop(claim)  # a concurrent report may have built one
        self._kept[key] = built
        self._size += built.size
        while self._size > MOST_PIECES and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1].size
        return built

    async def redact(self, claim: Claim, text: str) -> str:
        return await self._redaction.redact(claim.tenant, await self.of(claim), text)

    async def redacting(self, claim: Claim, log: LogWriter) -> LogWriter:
        """Returns a writer for the attempt's log that redacts the job's secrets."""
        redactor = await self.of(claim)
        return log if redactor is None else RedactingLog(log, redactor, self._redaction, claim.tenant)

    def drop(self, claim: Claim) -> None:
        dropped = self._kept.pop((claim.execution_id, claim.token), None)
        self._size -= 0 if dropped is None else dropped.size


class RedactingLog:
    """A LogWriter that redacts text and passes it on in order. It also redacts a secret that is split over two writes.

    Text waits for the thread if it is long, or if other text of this log is waiting. If too much waits, further text is
    left out, and the log says how much.
    """

    def __init__(self, log: LogWriter, redactor: Redactor, redaction: Redaction, tenant: str) -> None:
        self._log = log
        self._redactor = redactor
        self._redaction = redaction
        self._tenant = tenant
        self._streams: dict[Stream, StreamRedactor] = {}
        self._waiting: deque[tuple[Stream, str]] = deque()
        self._waiting_size = 0
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None

    def write(self, stream: Stream, text: str) -> None:
        if self._task is None and self._redaction.may_work_now(len(text)):
            self._pass_on(stream, self._stream(stream).feed(text))
            return
        if self._waiting_size + len(text) > MOST_WAITING:
            self._left_out += len(text)
            return
        self._waiting_size += len(text)
        self._waiting.extend((stream, text[at : at + LONGEST_PART]) for at in range(0, len(text), LONGEST_PART))
        if self._task is None:
            self._task = asyncio.create_task(self._work_off())

    async def close(self) -> None:
        try:
            if self._task is not None:
                await self._task
            for name, stream in self._streams.items():
                self._pass_on(name, stream.end())
        finally:
            self._streams.clear()
            await self._log.close()

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                name, text = self._waiting[0]
                shown = await self._redaction.run(self._tenant, len(text), partial(self._stream(name).feed, text))
                self._waiting.popleft()
                self._waiting_size -= len(text)
                self._pass_on(name, shown)
        finally:
            self._task = None
            self._log_left_out()

    def _log_left_out(self) -> None:
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._log.write("log", f"{count:,} characters were left out: redacting secrets took too long\n")

    def _stream(self, stream: Stream) -> StreamRedactor:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = StreamRedactor(self._redactor)
        return found

    def _pass_on(self, stream: Stream, text: str) -> None:
        if text:
            self._log.write(stream, text)
