"""A log without secrets: what an attempt prints passes through here if its payload has any."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.redaction import redact
from duetime.ports.logs import LogWriter, Stream

LONGEST_PART = 16_384  # characters of a line whose end has not come; then it is passed on as it is


class HidingLog:
    """Passes whole lines on, so that a secret that comes in two pieces is found, too."""

    def __init__(self, log: LogWriter, secrets: Sequence[str]) -> None:
        self._log = log
        self._secrets = secrets
        self._parts: dict[Stream, str] = {}

    def write(self, stream: Stream, text: str) -> None:
        text = self._parts.pop(stream, "") + text
        end = text.rfind("\n") + 1
        if len(text) - end < LONGEST_PART:
            text, self._parts[stream] = text[:end], text[end:]
        if text:
            self._log.write(stream, redact(text, self._secrets))

    async def close(self) -> None:
        for stream, part in self._parts.items():
            if part:
                self._log.write(stream, redact(part, self._secrets))
        self._parts.clear()
        await self._log.close()
