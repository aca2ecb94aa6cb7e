"""What of a job is secret, in three forms: plain as a person sends it, sealed as it is kept, hidden as it is shown.

Secret are all header values, and the places in the body that `payload.secret` points at. Kept is
`sealed:1:<key id>:<base64url>`: a header's text, or the JSON of what stood in the body. Whoever seals and unseals comes
in as an argument; here is only where that is done. Plain values of jobs from before there were keys pass everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from duetime.domain.commands import ChangeJob, NewJob
from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.http_rules import HIDDEN
from duetime.domain.job import HttpRequest, JobSpec
from duetime.domain.pointers import Steps, body_path, escape, get, put

SEALED = "sealed:"  # how all that is sealed begins, in whichever form
CHANGED = f"{HIDDEN} (changed)"

_OURS = "begins with 'sealed:', which Duetime keeps for itself; send another value"
_NO_KEY = (
    "this server has no key to seal {what} with; its operator sets ENCRYPTION_KEYS (`duetime keys create` prints one)"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Change = Callable[[str], str]


class Sealer(Protocol):
    """What is asked here of `ports.vault.Vault`."""

    @property
    def can_seal(self) -> bool: ...

    def seal(self, tenant: str, job_id: str, text: str) -> str: ...


def is_sealed(value: object) -> bool:
    return isinstance(value, str) and value.startswith(SEALED)


def key_id_of(sealed: str) -> str | None:
    """The id of the key that it was sealed with; None if this version can't tell."""
    parts = sealed.split(":")
    return parts[2] if len(parts) == 4 and parts[:2] == ["sealed", "1"] else None


def needs_sealing(spec: JobSpec) -> bool:
    """Whether anything secret in it is still plain."""
    return any(not is_sealed(value) for value in list_values(spec.payload))


def list_values(payload: HttpRequest) -> Iterator[Any]:
    """All that is secret, as it stands there."""
    yield from payload.headers.values()
    for _, value in _marked(payload):
        yield value


def _marked(payload: HttpRequest) -> Iterator[tuple[Steps, Any]]:
    """The marked places of the body, and what is there. A mark that points at nothing is left out."""
    for pointer in payload.secret:
        path = body_path(pointer)
        try:
            if path is not None:
                yield path, get(payload.body, path)
        except LookupError:
            continue


# What a person sends


def seal_job(job: NewJob, vault: Sealer) -> NewJob:
    """The job as it may be stored: of the many without a secret, the very same. Raises InvalidRequest without a key."""
    payload = job.spec.payload
    if not payload.headers and not payload.secret:
        return job
    return msgspec.structs.replace(job, spec=_sealed(job.spec, None, job.tenant, job.job_id, vault))


def seal_change(change: ChangeJob, old: JobSpec, vault: Sealer) -> ChangeJob:
    """The change as it may be stored; what it leaves alone stays sealed as it is in `old`. Raises as `seal_job`."""
    payload = change.spec.payload
    if not payload.headers and not payload.secret:
        return change
    return msgspec.structs.replace(change, spec=_sealed(change.spec, old, change.tenant, change.job_id, vault))


def _sealed(spec: JobSpec, old: JobSpec | None, tenant: str, job_id: str, vault: Sealer) -> JobSpec:
    if not needs_sealing(spec):
        return spec
    if not vault.can_seal:
        if any(not is_sealed(value) for value in spec.payload.headers.values()):
            raise InvalidRequest.at("/payload/headers", _NO_KEY.format(what="header values"))
        raise InvalidRequest.at("/payload/secret", _NO_KEY.format(what="secrets"))
    return seal_spec(spec, lambda text: vault.seal(tenant, job_id, text), old)


def seal_spec(spec: JobSpec, seal: Change, old: JobSpec | None = None) -> JobSpec:
    """All that is secret sealed, but for what is sealed in `old` at the same place: that stays. Checked before."""
    payload = spec.payload
    if not payload.headers and not payload.secret:
        return spec
    before = None if old is None else old.payload
    headers = {
        name: value if is_sealed(value) and before is not None and before.headers.get(name) == value else seal(value)
        for name, value in payload.headers.items()
    }
    body = payload.body
    for path, value in _marked(payload):
        if not (is_sealed(value) and before is not None and _stands_in(before, path, value)):
            body = put(body, path, seal(_encode(value).decode()))
    return _with(spec, headers, body)


def reseal_spec(spec: JobSpec, key_id: str, seal: Change, unseal: Change) -> JobSpec:
    """All that is secret sealed with the key of this id; the very same if it is so already."""

    def again(value: Any, plain: Change) -> str:
        if not is_sealed(value):
            return seal(plain(value))
        return value if key_id_of(value) == key_id else seal(unseal(value))

    payload = spec.payload
    if all(is_sealed(value) and key_id_of(value) == key_id for value in list_values(payload)):
        return spec
    headers = {name: again(value, str) for name, value in payload.headers.items()}
    body = payload.body
    for path, value in _marked(payload):
        body = put(body, path, again(value, lambda plain: _encode(plain).decode()))
    return _with(spec, headers, body)


def _with(spec: JobSpec, headers: dict[str, str], body: Any) -> JobSpec:
    return msgspec.structs.replace(spec, payload=msgspec.structs.replace(spec.payload, headers=headers, body=body))


def _stands_in(payload: HttpRequest, path: Steps, value: Any) -> bool:
    return any(other == path and was == value for other, was in _marked(payload))


# What an attempt sends


def unseal_payload(payload: HttpRequest, unseal: Change) -> HttpRequest:
    """As the person sent it."""
    headers = {name: unseal(value) if is_sealed(value) else value for name, value in payload.headers.items()}
    body = payload.body
    for path, value in _marked(payload):
        if is_sealed(value):
            body = put(body, path, _decode(unseal(value)))
    return msgspec.structs.replace(payload, headers=headers, body=body)


# What people see


def hide_payload(payload: HttpRequest, old: HttpRequest | None = None) -> HttpRequest:
    """With nothing secret in it. What `old` has at the same place with another value, is said to be changed."""
    if not payload.headers and not payload.secret:
        return payload
    kept = {} if old is None else old.headers
    headers = {name: _hidden(value, kept.get(name)) for name, value in payload.headers.items()}
    before = {} if old is None else dict(_marked(old))
    body = payload.body
    for path, value in _marked(payload):
        body = put(body, path, _hidden(value, before.get(path)))
    return msgspec.structs.replace(payload, headers=headers, body=body)


def _hidden(value: Any, before: Any) -> str:
    return HIDDEN if before is None or before == value else CHANGED


def hide_spec(spec: JobSpec, old: JobSpec | None = None) -> JobSpec:
    """A definition for the audit: all but its secrets, of which it says only that they are other than in `old`."""
    payload = hide_payload(spec.payload, None if old is None else old.payload)
    return spec if payload is spec.payload else msgspec.structs.replace(spec, payload=payload)


# What is wrong with what a person sends


def secret_problems(payload: HttpRequest, old: HttpRequest | None) -> Iterator[FieldError]:
    """About the marks, and what is there. Header values have `header_value_problem`."""
    paths: list[Steps] = []
    for number, pointer in enumerate(payload.secret):
        path = body_path(pointer)
        problem = _pointer_problem(payload.body, path, paths)
        if problem is not None or path is None:
            yield FieldError(f"/payload/secret/{number}", problem or "")
            continue
        paths.append(path)
        value = get(payload.body, path)
        if value == HIDDEN:
            yield FieldError(
                f"/payload{pointer}", "is what answers show in place of a secret; send the value, or leave it out"
            )
        elif is_sealed(value) and not (old is not None and _stands_in(old, path, value)):
            yield FieldError(f"/payload{pointer}", _OURS)
    if old is not None:
        yield from _still_sealed(payload, old, paths)


def _pointer_problem(body: Any, path: Steps | None, others: list[Steps]) -> str | None:
    if path is None:
        return "must be a JSON pointer into the body, such as /body/token; header values are secret without one"
    try:
        value = get(body, path)
    except LookupError:
        return "points at nothing in the body"
    if not path and value is None:
        return "points at the body, and there is none"
    if any(path[: len(other)] == other or other[: len(path)] == path for other in others):
        return "points at, into or around what another one points at; name each place once"
    return None


def _still_sealed(payload: HttpRequest, old: HttpRequest, paths: list[Steps]) -> Iterator[FieldError]:
    """A place that is marked no longer must not keep its sealed text, which would be sent as it is."""
    for path, was in _marked(old):
        if path in paths or not is_sealed(was):
            continue
        try:
            is_kept = get(payload.body, path) == was
        except LookupError:
            continue
        if is_kept:
            pointer = "".join(f"/{escape(step)}" for step in path)
            yield FieldError(f"/payload/body{pointer}", "was secret and can't be shown: send it anew, or mark it")


def header_value_problem(name: str, value: str, old: HttpRequest | None) -> str | None:
    """Why a person can't send a value that begins as what is sealed does; None if it is the one that is kept."""
    if old is not None and old.headers.get(name) == value:
        return None
    return f"The value of {name} {_OURS}."
