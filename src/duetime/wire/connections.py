"""Databases that SQL jobs may use."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.wire.words import ABSENT, Instant


class ConnectionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`url`: postgresql://user:password@host:port/database?sslmode=…, or sqlite:///file.db?mode=ro."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]


class ConnectionView(msgspec.Struct, frozen=True):
    """`shown`: the URL without user and password."""

    name: str
    shown: str = ""
    created_at: Instant = ABSENT
    created_by: str = ""


class ConnectionList(msgspec.Struct, frozen=True):
    connections: list[ConnectionView]


class ConnectionMessage(msgspec.Struct, frozen=True):
    name: str
    message: str = ""
