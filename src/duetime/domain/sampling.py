"""Which executions are traced, and the ids of their spans: all of it follows from the ids of executions and jobs.

So every node decides alike about each attempt, and the spans of one execution join up, without storing anything.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

from duetime.domain.ids import instant_of
from duetime.domain.instants import MINUTE

JOINED = MINUTE  # an execution that is due so soon after its job's creation has the creation in its trace
LAST = -7  # `id[:LAST:-1]` is the last six digits of an id, in reverse

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_NO_TRACE = "0" * 32
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Sampling(NamedTuple):
    """An id is sampled if its last digits, in reverse, are below `bound`.

    A page of executions has consecutive ids. In reverse, the digits that differ from one id to the next come first: so
    each page has its share of sampled ones, and not one page of a hundred all of it. Nodes with different ratios decide
    alike about all executions that the smaller ratio samples.
    """

    bound: str

    @classmethod
    def of(cls, ratio: float) -> Sampling:
        digits = -LAST - 1
        return cls("g" if ratio >= 1 else f"{int(ratio * 16**digits):0{digits}x}")  # "g" is above all digits

    def has(self, id: str) -> bool:
        return id[:LAST:-1] < self.bound


NOTHING = Sampling("")


def trace_id(execution_id: str) -> str:
    """Returns the execution's UUID as a trace id, so that each can be found from the other.

    An execution id that is no valid trace id is hashed.
    """
    text = execution_id.replace("-", "").lower()
    if _TRACE_ID.fullmatch(text) and text != _NO_TRACE:
        return text
    return hashlib.sha256(execution_id.encode()).hexdigest()[:32]


@lru_cache(maxsize=64)  # nearly all attempts are first attempts
def attempt_span_id(token: int, attempt: int) -> str:
    """Returns the span id of an attempt. All zeros would be invalid, but attempts count from 1."""
    return f"{token & 0xFFFF_FFFF:08x}{attempt & 0xFFFF_FFFF:08x}"


def span_id(name: str, id: str, number: int = 0) -> str:
    """Returns the id of another span of the execution or job `id`."""
    return hashlib.blake2b(f"{name} {number} {id}".encode(), digest_size=8).hexdigest()


def joins_creation(execution_id: str, job_id: str) -> bool:
    """Returns whether the trace of the execution begins with the creation of its job."""
    return 0 <= instant_of(execution_id) - instant_of(job_id) <= JOINED


class Parent(NamedTuple):
    """The caller's span, from its `traceparent` header."""

    trace_id: str
    span_id: str
    is_sampled: bool


def parent_of(header: bytes | None) -> Parent | None:
    """Returns the span that a `traceparent` header names; None if there is none, or it is invalid."""
    match = _TRACEPARENT.fullmatch(header.decode("latin-1")) if header and len(header) <= 256 else None
    if match is None or match[1] == _NO_TRACE or match[2] == "0" * 16:
        return None
    return Parent(match[1], match[2], bool(int(match[3], 16) & 1))
