"""JSON pointers (RFC 6901) into a field of a payload: read and replace the value at a place."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_POINTER = re.compile(r"/(?P<field>[a-z]+)(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

Steps = tuple[str, ...]


@lru_cache(maxsize=1024)
def path_in(field: str, pointer: str) -> Steps | None:
    """Returns the steps from the field to the place; none for the field itself. None if it is no pointer into it."""
    match = _POINTER.fullmatch(pointer)
    if match is None or match["field"] != field:
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[2:])


def escape(name: str) -> str:
    """Returns a name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def get(value: Any, path: Steps) -> Any:
    """Returns the value at the path. Raises LookupError if there is none."""
    for step in path:
        value = value[_key(value, step)]
    return value


def put(whole: Any, path: Steps, value: Any) -> Any:
    """Returns a copy of `whole` with `value` at the path. Raises LookupError if there is no value at the path."""
    if not path:
        return value
    key = _key(whole, path[0])
    changed = whole.copy()
    changed[key] = put(whole[key], path[1:], value)
    return changed


def _key(container: Any, step: str) -> Any:
    if isinstance(container, dict) and step in container:
        return step
    if isinstance(container, list) and _INDEX.fullmatch(step) and int(step) < len(container):
        return int(step)
    raise LookupError(step)
