"""Decodes request bodies: JSON into typed values, with errors that name the field and say what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from duetime.domain.errors import InvalidRequest, PayloadTooLarge
from duetime.domain.job import USER_TYPES, HttpJob, JobSpec, JobType, PythonJob, ScriptJob, SqlJob, UserSpec
from duetime.domain.weights import LIGHT_BYTES, MOST_WEIGHT, is_too_heavy

MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 32
MOST_SEARCHED_BYTES = 64 * 1024  # the largest body that is searched for the place of a NUL
_LONGEST_NAME = 64
_NESTING = frozenset({dict, list})

T = TypeVar("T")

_AT = re.compile(r"^(?P<message>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


@lru_cache(maxsize=64)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", kind))


KINDS: dict[str, type[Any]] = {kind.type: kind for kind in (HttpJob, ScriptJob, SqlJob, PythonJob)}
_decode_http = msgspec.json.Decoder(HttpJob).decode
_decode_https = msgspec.json.Decoder(HttpJob).decode_lines
_decode_any = msgspec.json.Decoder(UserSpec).decode_lines
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_spec(body: bytes) -> JobSpec:
    """Decodes a job, on the hot path. A job without a type is an HTTP request. Raises InvalidRequest."""
    if len(body) > LIGHT_BYTES and is_too_heavy(body):
        raise _too_heavy()
    if b"\\u0000" in body:
        _check_text(body)
    kind: Any = HttpJob
    try:
        if b'"type"' in body and b'"http_request"' not in body:
            kind = _kind_of(body)
        spec: JobSpec = _decode_http(body) if kind is HttpJob else _decoder(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise explain(error, kind) from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_deep(_nested(spec), MAX_DEPTH - 2):
        raise _too_deep()
    return spec


def _kind_of(body: bytes) -> type[Any]:
    return kind_named(msgspec.json.decode(_decode_raw(body).get("type", b'"http_request"')))


def kind_named(name: object) -> type[Any]:
    """Returns the struct for a job type. Raises InvalidRequest."""
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    if name == JobType.NOTICE:
        raise InvalidRequest.at("/type", "notices of alerts are jobs that only Duetime itself creates and changes")
    raise InvalidRequest.at("/type", f"must be one of {', '.join(USER_TYPES)}")


def _nested(spec: JobSpec) -> Any:
    """Returns the part of a job whose nesting is not limited by its type."""
    match spec:
        case HttpJob():
            return spec.payload.body
        case SqlJob():
            return spec.payload.parameters
        case PythonJob():
            return [spec.payload.args, spec.payload.kwargs]
        case _:
            return None


def decode_specs(block: bytes) -> list[JobSpec] | None:
    """Decodes lines of jobs in one call, several times as fast as one by one. Returns None if any line is invalid.

    `decode_spec` then finds the line and the error. The caller must have checked the weight (`domain.weights`).
    """
    if b"\\u0000" in block:
        return None
    try:
        specs: list[JobSpec] = [*(_decode_any if b'"type"' in block else _decode_https)(block)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for spec in specs:
        body = spec.payload.body if type(spec) is HttpJob else _nested(spec)
        if type(body) in _NESTING and not _is_flat(body) and is_deep(body, MAX_DEPTH - 2):
            return None
    return specs


def _is_flat(body: dict[str, Any] | list[Any]) -> bool:
    """Returns whether nothing is nested, as in nearly all bodies. It costs a batch a tenth of what `is_deep` does."""
    for child in body.values() if type(body) is dict else body:  # noqa: SIM110 (a generator would cost as much again)
        if type(child) in _NESTING:
            return False
    return True


def is_deep(value: object, most: int) -> bool:
    """Returns whether a value is nested deeper than `most` levels. Works level by level: a megabyte takes a few ms."""
    level: list[Any] = [value] if type(value) in _NESTING else []
    for _ in range(most - 1):
        if not level:
            return False
        level = [child for child in _children(level) if child and type(child) in _NESTING]
    return any(type(child) in _NESTING for child in _children(level))


def _children(level: list[Any]) -> Iterator[Any]:
    return chain.from_iterable(item.values() if type(item) is dict else item for item in level)


def _too_deep() -> InvalidRequest:
    return InvalidRequest.at("", f"the body is nested more than {MAX_DEPTH} levels deep; flatten it")


def _too_heavy(most: int = MOST_WEIGHT) -> InvalidRequest:
    message = f"the body has more than {most:,} values, where a list or an object counts as 5; send fewer, or as a text"
    return InvalidRequest.at("", message)


def decode(body: bytes, kind: type[T], most_bytes: int = MAX_BODY_BYTES, most_weight: int = MOST_WEIGHT) -> T:
    """Decodes any other body. An empty body counts as an empty object. Raises InvalidRequest or PayloadTooLarge."""
    if len(body) > most_bytes:
        raise PayloadTooLarge(f"the body has {len(body)} bytes; {most_bytes} are allowed")
    if is_too_heavy(body, most_weight):
        raise _too_heavy(most_weight)
    if b"\\u0000" in body:
        _check_text(body)
    try:
        value: T = _decoder(cast(Hashable, kind)).decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise explain(error, kind) from None
    if is_deep(value, MAX_DEPTH):
        raise _too_deep()
    return value


def convert(value: object, kind: type[T]) -> T:
    """Converts a decoded value to `kind`. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise explain(error, kind) from None


def explain(error: Exception, kind: Any) -> InvalidRequest:
    """Returns a decoder's error as a pointer and a message. For an unknown field it names the nearest known one."""
    if isinstance(error, RecursionError):
        return _too_deep()
    if not isinstance(error, msgspec.ValidationError):
        return InvalidRequest.at("", f"the body is not valid JSON: {str(error) or type(error).__name__}")
    match = _AT.match(str(error))
    assert match is not None
    message, pointer, at = match["message"], _pointer(match["path"] or ""), kind
    for name, _ in _STEP.findall(match["path"] or ""):
        at = _field_type(at, name)
    if unknown := _UNKNOWN.match(message):
        name = unknown["name"][:_LONGEST_NAME]
        return InvalidRequest.at(f"{pointer}/{name}", _unknown_field(name, _names(at)))
    if missing := _MISSING.match(message):
        return InvalidRequest.at(f"{pointer}/{missing['name']}", "this field is required")
    message = message.replace("`", "'").replace("Expected", "expected", 1)
    if message.startswith("Invalid enum value") and (choices := _choices(at)):
        message = f"{message}; it is one of {', '.join(choices)}"
    return InvalidRequest.at(pointer, message)


def _choices(kind: Any) -> list[str]:
    """Returns the values of a field's enum or literal, at any depth of its type."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [str(word) for word in kind]
    words = get_args(kind)
    if get_origin(kind) is Literal:
        return [str(word) for word in words]
    return next((found for word in words if (found := _choices(word))), [])


@lru_cache(maxsize=1024)
def _unknown_field(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return "unknown field; " + (f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(sorted(known))}")


def _names(kind: Any) -> tuple[str, ...]:
    """Returns the names of a struct's fields, and of its tag field."""
    fields: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
    tag = kind.__struct_config__.tag_field if fields else None
    return fields if tag is None else (tag, *fields)


def _pointer(path: str) -> str:
    """Returns msgspec's `$.a[0].b` as the JSON pointer `/a/0/b`."""
    return "".join(f"/{name or index}" for name, index in _STEP.findall(path))


def _field_type(kind: Any, name: str) -> Any:
    return _field_types(kind).get(name, kind) if hasattr(kind, "__struct_fields__") else kind


@lru_cache(maxsize=64)
def _field_types(kind: Any) -> dict[str, Any]:
    """Returns the types of a struct's fields by name. Cached: msgspec takes half a millisecond for it."""
    return {field.encode_name: _struct_of(field.type) for field in msgspec.structs.fields(kind)}


def _struct_of(kind: Any) -> Any:
    """Returns the struct of an optional field, whose type is `Struct | None`; any other type as it is."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return next((one for one in get_args(kind) if hasattr(one, "__struct_fields__")), kind)


def _check_text(body: bytes) -> None:
    """Raises InvalidRequest for a NUL, which decoders accept but no database should get. Called if there may be one."""
    if b"\\u0000" not in body.replace(b"\\\\", b"  "):  # only an escaped backslash followed by u0000
        return
    message = "holds a NUL character (\\u0000); remove it"
    if len(body) > MOST_SEARCHED_BYTES:
        raise InvalidRequest.at("", f"the body {message}")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the typed decoder reports the error
    if is_deep(value, MAX_DEPTH):
        raise _too_deep()
    for pointer in _nul_pointers(value, ""):
        raise InvalidRequest.at(pointer, message)


def _nul_pointers(value: object, pointer: str) -> Iterator[str]:
    if isinstance(value, str):
        if "\0" in value:
            yield pointer
    elif isinstance(value, dict):
        for name, item in value.items():
            if "\0" in name:
                yield pointer
            yield from _nul_pointers(item, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nul_pointers(item, f"{pointer}/{index}")


def change_spec(old: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """Returns the job with these fields changed. A new type drops the old payload. Raises InvalidRequest."""
    kind, before = kind_named(changes.get("type") or old.type), msgspec.to_builtins(old)
    if kind is not type(old):
        del before["payload"]
    _check_names({name: value for name, value in changes.items() if name != "type"}, kind)
    return cast(JobSpec, convert(merge(before, {**changes, "type": kind.type.value}), kind))


def _check_names(patch: dict[str, Any], kind: Any, pointer: str = "") -> None:
    """Raises InvalidRequest for an unknown field. (After the merge, an unknown field set to null is invisible.)"""
    known = _field_types(kind)
    for name, value in patch.items():
        at = f"{pointer}/{name[:_LONGEST_NAME]}"
        if name not in known:
            raise InvalidRequest.at(at, _unknown_field(name[:_LONGEST_NAME], _names(kind)))
        if isinstance(value, dict) and hasattr(known[name], "__struct_fields__"):
            _check_names(value, known[name], at)


def merge(old: Any, patch: Any) -> Any:
    """RFC 7396: named fields change, null removes, the rest stays."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
