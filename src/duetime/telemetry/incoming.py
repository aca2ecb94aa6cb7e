"""The request that the current task handles, for the span of what it creates. The gate sets it if traces are on."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from duetime.domain.sampling import Parent


class Incoming(NamedTuple):
    """`began_at`: ms since 1970. `route`: a template, not a path. `parent`: the caller's span."""

    began_at: float
    method: str
    route: str
    request_id: str
    parent: Parent | None


incoming: ContextVar[Incoming | None] = ContextVar("incoming", default=None)
