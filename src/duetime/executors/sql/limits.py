"""How much a SQL job may have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class SqlLimits(msgspec.Struct, frozen=True):
    """`rows` and `bytes` bound what is kept of a result, never what a statement does."""

    rows: Annotated[int, Meta(ge=0)] = 100
    bytes: Annotated[int, Meta(ge=256)] = 16_384  # of the result as JSON
    connections: Annotated[int, Meta(ge=1)] = 4  # at once, for a tenant and URL
    pools: Annotated[int, Meta(ge=1)] = 64  # tenants and URLs whose connections are kept while nobody uses them
    idle_seconds: Annotated[float, Meta(gt=0)] = 30.0  # a connection that nobody uses is closed after that
