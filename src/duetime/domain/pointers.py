"""JSON pointers (RFC 6901) into a payload's body: what is at a place, and the same body with something else there."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_POINTER = re.compile(r"/body(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

Steps = tuple[str, ...]


@lru_cache(maxsize=1024)
def body_path(pointer: str) -> Steps | None:
    """The steps from the body to where `pointer` points; no step if that is the body. None: it is no such pointer."""
    if _POINTER.fullmatch(pointer) is None:
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[2:])


def escape(name: str) -> str:
    """A name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def get(body: Any, path: Steps) -> Any:
    """What is there. Raises LookupError if nothing is."""
    for step in path:
        body = body[_key(body, step)]
    return body


def put(body: Any, path: Steps, value: Any) -> Any:
    """The body with `value` there; what was given stays as it is. Raises LookupError if nothing is there."""
    if not path:
        return value
    key = _key(body, path[0])
    changed = body.copy()
    changed[key] = put(body[key], path[1:], value)
    return changed


def _key(container: Any, step: str) -> Any:
    if isinstance(container, dict) and step in container:
        return step
    if isinstance(container, list) and _INDEX.fullmatch(step) and int(step) < len(container):
        return int(step)
    raise LookupError(step)
