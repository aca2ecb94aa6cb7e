"""How a node holds the definitions of the jobs that it runs: how much memory a large one takes, and in which form.

Memory for claims is counted in places of 4 kB. Nearly every definition takes one place. A larger one takes as many as
the definition and its request fill. A webhook's body and a function's arguments stay JSON text while they are held:
250,000 empty lists are 750 kB of text, and 17 MB once decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from duetime.domain.job import Definition, HttpJob, JobSpec, NoticeJob, PythonJob, ScriptJob, SqlJob
from duetime.domain.payloads import Fields, HttpRequest, Label, Method, PythonCall

PLACE_BYTES = 4096
VALUE_BYTES = 72  # of a decoded value: an empty list or dict, and the reference to it


class LargeDefinition(msgspec.Struct, frozen=True, tag_field="type", tag="large"):
    """A definition of more than one place, as a store returns it. `hold` turns it into a JobSpec."""

    spec: msgspec.Raw


if TYPE_CHECKING:
    StoredSpec = JobSpec
else:
    StoredSpec = JobSpec | LargeDefinition  # until `store.decoding` has replaced it


class _HeldRequest(Fields, frozen=True):
    url: str
    method: Method = "POST"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: msgspec.Raw = msgspec.Raw(b"null")
    expect_status: tuple[int, ...] = ()
    secret: tuple[str, ...] = ()


class _HeldCall(Fields, frozen=True):
    function: Label
    args: msgspec.Raw = msgspec.Raw(b"[]")
    kwargs: msgspec.Raw = msgspec.Raw(b"{}")
    secret: tuple[str, ...] = ()


class _HeldHttpJob(Definition, frozen=True, kw_only=True, tag="http_request"):
    payload: _HeldRequest


class _HeldPythonJob(Definition, frozen=True, kw_only=True, tag="python"):
    payload: _HeldCall


_decode_held = msgspec.json.Decoder(_HeldHttpJob | _HeldPythonJob | ScriptJob | SqlJob | NoticeJob).decode
_decode_whole = msgspec.json.Decoder(JobSpec).decode


def places_for(size: int) -> int:
    """Returns how many places `size` bytes take."""
    return 1 + size // PLACE_BYTES


def limit_of_bytes(places: int) -> int:
    """Returns how many bytes of definitions to claim while `places` places are free."""
    return max(0, places) * PLACE_BYTES // 2  # the definition, and the request


def hold(large: LargeDefinition) -> tuple[JobSpec, int]:
    """Returns the definition as it is held, and how many places it takes. Raises msgspec.ValidationError."""
    text = bytes(large.spec)  # a copy: the text of the whole page would be kept otherwise
    held = _decode_held(text)
    size = 2 * len(text)  # the definition, and the request
    if isinstance(held, ScriptJob | NoticeJob):
        return held, places_for(size)
    if isinstance(held, SqlJob) or held.payload.secret:  # `secret` points into the decoded value
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        return _decode_whole(text), places_for(size + VALUE_BYTES * values)
    payload: HttpRequest | PythonCall
    if isinstance(held, _HeldHttpJob):
        body = None if bytes(held.payload.body) == b"null" else held.payload.body
        payload = HttpRequest(**_fields(held.payload, body=body))
        return HttpJob(**_fields(held, payload=payload)), places_for(size)
    payload = PythonCall(**_fields(held.payload))
    return PythonJob(**_fields(held, payload=payload)), places_for(size)


def _fields(struct: msgspec.Struct, **others: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__} | others


def whole(spec: JobSpec) -> JobSpec:
    """Returns the definition with all its values decoded."""
    payload = spec.payload
    if isinstance(payload, HttpRequest) and isinstance(payload.body, msgspec.Raw):
        return msgspec.structs.replace(spec, payload=msgspec.structs.replace(payload, body=plain(payload.body)))
    if isinstance(payload, PythonCall) and isinstance(payload.args, msgspec.Raw):
        call = msgspec.structs.replace(payload, args=plain(payload.args), kwargs=plain(payload.kwargs))
        return msgspec.structs.replace(spec, payload=call)
    return spec


def plain(value: Any) -> Any:
    """Returns a body, or arguments, as a value: decoded if they are held as text."""
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
