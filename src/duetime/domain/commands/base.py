"""The base class of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

import msgspec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", covariant=True, default=object)
else:
    from typing import TypeVar  # has no defaults before Python 3.13

    R = TypeVar("R")


class Command(msgspec.Struct, Generic[R], frozen=True):
    """Base of all commands. `R`: what applying the command returns. A bare `Command` may return anything."""
