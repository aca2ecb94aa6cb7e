"""Splits jobs into batches for the server, and merges the responses. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from duetime.client.calls import BASE, Call
from duetime.client.errors import BatchInterrupted, DuetimeError, Problem, ServerAway
from duetime.client.models import BatchResult, Refused

# Of a job: one of the structs in duetime.domain.job, or a dict.
Definition = msgspec.Struct | dict[str, Any]

CHUNK_JOBS = 5000
CHUNK_BYTES = 8 * 1024 * 1024


def batch_call(lines: bytes) -> Call[BatchResult]:
    """Returns a call that must not be repeated: it has no idempotency key, and would create jobs twice."""
    headers = {"Content-Type": "application/x-ndjson"}
    return Call("POST", f"{BASE}/jobs:batch", BatchResult, lines, headers)


class Batch:
    """Pass jobs to `add`, send the calls that it returns, and pass their responses to `answered`."""

    def __init__(self) -> None:
        self._lines = bytearray()
        self._held: list[int] = []  # the indexes of the jobs in those lines
        self._count = 0  # of all jobs so far, also those that were not sent
        self._created: list[str] = []
        self._refused: list[Refused] = []
        self._also_refused: dict[str, list[int]] = {}
        self._encoder = msgspec.json.Encoder()

    def add(self, job: Definition) -> Call[BatchResult] | None:
        """Returns a call if one is due. It must be sent, and its response passed on, before the next job is added."""
        self._lines += self._encoder.encode(job)
        self._lines += b"\n"
        self._held.append(self._count)
        self._count += 1
        return self.rest() if len(self._held) >= CHUNK_JOBS or len(self._lines) >= CHUNK_BYTES else None

    def refuse(self, error: str, message: str) -> None:
        """Records the next job as refused by the caller. It is not sent."""
        self._refused.append(Refused(self._count, error, message))
        self._count += 1

    def rest(self) -> Call[BatchResult] | None:
        return batch_call(bytes(self._lines)) if self._held else None

    def answered(self, answer: BatchResult) -> None:
        held = self._held
        self._created += answer.created
        self._refused += [msgspec.structs.replace(item, index=held[item.index]) for item in answer.refused]
        for code, indexes in answer.also_refused.items():
            self._also_refused.setdefault(code, []).extend(held[index] for index in indexes)
        self._held = []
        self._lines.clear()

    def result(self) -> BatchResult:
        self._refused.sort(key=lambda item: item.index)
        refused_count = len(self._refused) + sum(map(len, self._also_refused.values()))
        return BatchResult(len(self._created), refused_count, self._created, self._refused, self._also_refused)

    def interrupted(self, error: DuetimeError) -> BatchInterrupted:
        """Returns the error to raise when a call failed with `error`."""
        was_refused = isinstance(error, Problem) or (isinstance(error, ServerAway) and not error.was_sent)
        begin = self._held[0] if self._held else self._count
        unknown = 0 if was_refused else len(self._held)
        doubt = f"the next {unknown} may have been created: check before you send them again" if unknown else (
            "no job from there on was created: send those again"
        )  # fmt: skip
        message = f"the batch was interrupted at index {begin}, with {len(self._created)} jobs created; {doubt}: "
        return BatchInterrupted(message + error.message, self.result(), begin, unknown)
