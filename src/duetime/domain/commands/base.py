"""The base class of all commands."""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, frozen=True):
    """Base of all commands."""
