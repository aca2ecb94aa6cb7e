"""Finds the method that applies a command: it has the command's name. `create_jobs` applies `CreateJobs`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from duetime.domain import commands as c

_COMMANDS = [
    kind
    for kind in map(vars(c).__getitem__, c.__all__)
    if isinstance(kind, type) and issubclass(kind, c.Command) and kind is not c.Command
]


def handlers(*parts: object) -> dict[type[c.Command], Callable[[Any], Any]]:
    """Returns the handler of each command, a method of one of `parts`. Raises TypeError unless exactly one has it."""
    return {command: getattr(parts[place], name) for command, place, name in _places(tuple(map(type, parts)))}


@cache
def _places(kinds: tuple[type, ...]) -> list[tuple[type[c.Command], int, str]]:
    found = []
    for command in _COMMANDS:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", command.__name__).lower()
        places = [place for place, kind in enumerate(kinds) if hasattr(kind, name)]
        if len(places) != 1:
            raise TypeError(f"{len(places)} classes have a method {name} for the command {command.__name__}, not one")
        found.append((command, places[0], name))
    return found
