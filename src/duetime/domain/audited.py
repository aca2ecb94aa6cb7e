"""What the audit stores of a job's definition: the fields that a change changed, and the hash of a long value.

An entry is kept for a year, and a change may have a megabyte. So the size of an entry is bounded: a value of more than
1 kB is replaced by its length and its SHA-256, by which a copy of the value can be recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from duetime.domain.job import Definition, JobSpec

LONGEST_VALUE = 1024  # bytes of its JSON
LONGEST_ENTRY = 4 * 1024  # of all values together; in a longer one, values of more than LONGEST_OF_MANY are hashed
LONGEST_OF_MANY = 100

_encode = msgspec.json.Encoder(order="deterministic").encode


def changed_fields(before: JobSpec, after: JobSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the fields that differ, before and after, and those of the payload. All fields if the type changed."""
    if type(before) is not type(after):
        return kept(_fields(before) | {"type": before.type}), kept(_fields(after) | {"type": after.type})
    was, now = _differing(_fields(before), _fields(after))
    if "payload" in was:
        was["payload"], now["payload"] = _differing(_fields(before.payload), _fields(after.payload))
    return kept(was), kept(now)


def kept(definition: Definition | Mapping[str, Any]) -> dict[str, Any]:
    """Returns a definition, or some fields of one, as an entry stores it."""
    fields = msgspec.to_builtins(definition)
    shown = _shortened(fields, LONGEST_VALUE)
    return shown if len(_encode(shown)) <= LONGEST_ENTRY else _shortened(fields, LONGEST_OF_MANY)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _differing(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in before if before[name] != after[name]]
    return {name: before[name] for name in names}, {name: after[name] for name in names}


def _shortened(fields: Mapping[str, Any], longest: int) -> dict[str, Any]:
    shown = {name: _short(value, longest) for name, value in fields.items() if name != "payload"}
    if "payload" in fields:
        shown["payload"] = {name: _short(value, longest) for name, value in fields["payload"].items()}
    return shown


def _short(value: Any, longest: int) -> Any:
    text = value.encode() if isinstance(value, str) else _encode(value)
    return value if len(text) <= longest else {"sha256": sha256(text).hexdigest(), "bytes": len(text)}
