"""Secrets of a job in three forms: plain as a user sends them, encrypted as stored, hidden as shown.

All values of one field of a payload are secret (a webhook's headers, a script's env: `encrypted_field`), and the places
in another field that `payload.secret` points at (the body, a function's kwargs, SQL parameters: `marked_field`).
The stored form is `encrypted:1:<key id>:<base64url>`: of a value's text, or of the JSON at the place. The functions
that encrypt and decrypt are arguments; this module only finds the places. Versions without keys stored plain values:
these are accepted everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from duetime.domain.commands import ChangeJob, NewJob
from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.http_rules import HIDDEN
from duetime.domain.job import JobSpec
from duetime.domain.payloads import HttpRequest, Payload
from duetime.domain.pointers import Steps, escape, get, path_in, put

MOST_LEAVES = 1000  # texts and numbers that one job marks as secret: redaction searches for each in all output
MOST_MARKED_CHARACTERS = 262_144  # of all of them
ENCRYPTED = "encrypted:"  # the beginning of all encrypted values
CHANGED = f"{HIDDEN} (changed)"

_OURS = "begins with 'encrypted:', which is reserved for Duetime; send another value"
_NO_KEY = (
    "this server has no key to encrypt {what} with; its operator sets ENCRYPTION_KEYS "
    "(`duetime keys create` prints one)"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Change = Callable[[str], str]


class Encryptor(Protocol):
    """The part of `ports.vault.Vault` that this module needs."""

    @property
    def can_encrypt(self) -> bool: ...

    def encrypt(self, tenant: str, job_id: str, text: str) -> str: ...


def is_encrypted(value: object) -> bool:
    return isinstance(value, str) and value.startswith(ENCRYPTED)


def key_id_of(encrypted: str) -> str | None:
    """Returns the id of the key that the text was encrypted with; None if this version can't read the text."""
    parts = encrypted.split(":")
    return parts[2] if len(parts) == 4 and parts[:2] == ["encrypted", "1"] else None


def has_secrets(payload: Payload) -> bool:
    """Returns whether anything is secret. Called for each job and each attempt: most have no secrets."""
    if type(payload) is HttpRequest:
        return bool(payload.headers or payload.secret)
    return bool(encrypted_values(payload) or _pointers(payload))


def encrypted_values(payload: Payload) -> dict[str, str]:
    """Returns the values of the field in which all values are secret, by name."""
    values: dict[str, str] = getattr(payload, payload.encrypted_field) if payload.encrypted_field else {}
    return values


def _pointers(payload: Payload) -> tuple[str, ...]:
    pointers: tuple[str, ...] = getattr(payload, "secret", ())
    return pointers


def _whole(payload: Payload) -> Any:
    """Returns the value that the pointers in `secret` point into."""
    return getattr(payload, payload.marked_field) if payload.marked_field else None


def connection_place(name: str) -> str:
    """Returns the name that the URL of a connection is encrypted for, instead of a job's id."""
    return f"connection:{name}"


def channel_place(name: str) -> str:
    """Returns the name that the URL of an alert channel is encrypted for, instead of a job's id."""
    return f"channel:{name}"


def needs_encryption(spec: JobSpec) -> bool:
    """Returns whether the spec has an unencrypted secret."""
    return any(not is_encrypted(value) for value in list_values(spec.payload))


def list_values(payload: Payload) -> Iterator[Any]:
    """Yields all secret values, as they are stored."""
    yield from encrypted_values(payload).values()
    for _, value in list_marked(payload):
        yield value


def list_marked(payload: Payload) -> Iterator[tuple[Steps, Any]]:
    """Yields the marked places with their values. A mark that points at nothing is left out."""
    for pointer in _pointers(payload):
        path = path_in(payload.marked_field, pointer)
        try:
            if path is not None:
                yield path, get(_whole(payload), path)
        except LookupError:
            continue


def list_leaves(value: Any) -> Iterator[str]:
    """Yields the texts and numbers in a value, as text and in order: the parts that output may contain."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield _encode(item).decode()


# Values that users send


def encrypt_job(job: NewJob, vault: Encryptor) -> NewJob:
    """Returns the job with its secrets encrypted. Raises InvalidRequest if there are secrets and no key."""
    if not has_secrets(job.spec.payload):
        return job
    return msgspec.structs.replace(job, spec=_encrypted(job.spec, None, job.tenant, job.job_id, vault))


def encrypt_change(change: ChangeJob, old: JobSpec, vault: Encryptor) -> ChangeJob:
    """Returns the change with its secrets encrypted. Unchanged ones stay as in `old`. Raises as `encrypt_job`."""
    if not has_secrets(change.spec.payload):
        return change
    return msgspec.structs.replace(change, spec=_encrypted(change.spec, old, change.tenant, change.job_id, vault))


def _encrypted(spec: JobSpec, old: JobSpec | None, tenant: str, job_id: str, vault: Encryptor) -> JobSpec:
    if not needs_encryption(spec):
        return spec
    if not vault.can_encrypt:
        field = spec.payload.encrypted_field
        if any(not is_encrypted(value) for value in encrypted_values(spec.payload).values()):
            raise InvalidRequest.at(f"/payload/{field}", _NO_KEY.format(what=f"values of {field}"))
        raise InvalidRequest.at("/payload/secret", _NO_KEY.format(what="secrets"))
    return encrypt_spec(spec, lambda text: vault.encrypt(tenant, job_id, text), old)


def encrypt_spec(spec: JobSpec, encrypt: Change, old: JobSpec | None = None) -> JobSpec:
    """Returns the spec with its secrets encrypted. Values that `old` has encrypted at the same place stay."""
    payload = spec.payload
    if not has_secrets(payload):
        return spec
    before = None if old is None else old.payload
    kept = {} if before is None else encrypted_values(before)
    values = {
        name: value if is_encrypted(value) and kept.get(name) == value else encrypt(value)
        for name, value in encrypted_values(payload).items()
    }
    whole = _whole(payload)
    for path, value in list_marked(payload):
        if not (is_encrypted(value) and before is not None and _stands_in(before, path, value)):
            whole = put(whole, path, encrypt(_encode(value).decode()))
    return msgspec.structs.replace(spec, payload=_with(payload, values, whole))


def reencrypt_spec(spec: JobSpec, key_id: str, encrypt: Change, decrypt: Change) -> JobSpec:
    """Returns the spec with its secrets encrypted with the key `key_id`; the same object if they are already."""

    def again(value: Any, plain: Change) -> str:
        if not is_encrypted(value):
            return encrypt(plain(value))
        return value if key_id_of(value) == key_id else encrypt(decrypt(value))

    payload = spec.payload
    if all(is_encrypted(value) and key_id_of(value) == key_id for value in list_values(payload)):
        return spec
    values = {name: again(value, str) for name, value in encrypted_values(payload).items()}
    whole = _whole(payload)
    for path, value in list_marked(payload):
        whole = put(whole, path, again(value, lambda plain: _encode(plain).decode()))
    return msgspec.structs.replace(spec, payload=_with(payload, values, whole))


def _with(payload: Payload, values: dict[str, str], whole: Any) -> Payload:
    changes = {payload.encrypted_field: values} if payload.encrypted_field else {}
    if payload.marked_field:
        changes[payload.marked_field] = whole
    return msgspec.structs.replace(payload, **changes)


def _stands_in(payload: Payload, path: Steps, value: Any) -> bool:
    return any(other == path and was == value for other, was in list_marked(payload))


# Values that an attempt sends


def decrypt_payload(payload: Payload, decrypt: Change) -> Payload:
    """Returns the payload as the user sent it."""
    values = {
        name: decrypt(value) if is_encrypted(value) else value for name, value in encrypted_values(payload).items()
    }
    whole = _whole(payload)
    for path, value in list_marked(payload):
        if is_encrypted(value):
            whole = put(whole, path, _decode(decrypt(value)))
    return _with(payload, values, whole)


# Values that users see


def hide_payload(payload: Payload, old: Payload | None = None) -> Payload:
    """Returns the payload with its secrets hidden. A value that differs from that in `old` is shown as changed."""
    if not has_secrets(payload):
        return payload
    kept = {} if old is None else encrypted_values(old)
    values = {name: _hidden(value, kept.get(name)) for name, value in encrypted_values(payload).items()}
    before = {} if old is None else dict(list_marked(old))
    whole = _whole(payload)
    for path, value in list_marked(payload):
        whole = put(whole, path, _hidden(value, before.get(path)))
    return _with(payload, values, whole)


def _hidden(value: Any, before: Any) -> str:
    return HIDDEN if before is None or before == value else CHANGED


def hide_spec(spec: JobSpec, old: JobSpec | None = None) -> JobSpec:
    """Returns a definition for the audit: its secrets are hidden, and shown as changed if they differ from `old`."""
    payload = hide_payload(spec.payload, None if old is None else old.payload)
    return spec if payload is spec.payload else msgspec.structs.replace(spec, payload=payload)


# Errors in values that users send


def secret_problems(payload: Payload, old: Payload | None) -> Iterator[FieldError]:
    """Yields errors about the marks and their values. For the other secrets, see `encrypted_value_problem`."""
    paths: list[Steps] = []
    fresh: list[Any] = []
    for number, pointer in enumerate(_pointers(payload)):
        path = path_in(payload.marked_field, pointer)
        problem = _pointer_problem(payload, path, paths)
        if problem is not None or path is None:
            yield FieldError(f"/payload/secret/{number}", problem or "")
            continue
        paths.append(path)
        value = get(_whole(payload), path)
        if old is None or not _stands_in(old, path, value):
            fresh.append(value)
        if value == HIDDEN:
            yield FieldError(
                f"/payload{pointer}", "is what responses show instead of a secret; send the value, or leave it out"
            )
        elif is_encrypted(value) and not (old is not None and _stands_in(old, path, value)):
            yield FieldError(f"/payload{pointer}", _OURS)
    if fresh and (problem := _amount_problem(fresh)):
        yield FieldError("/payload/secret", problem)
    if old is not None and old.marked_field == payload.marked_field:
        yield from _still_encrypted(payload, old, paths)


def _amount_problem(values: list[Any]) -> str | None:
    """Returns why so much can't be secret; None if it can. It stops counting at a limit."""
    characters = 0
    for count, leaf in enumerate(list_leaves(values), 1):
        characters += len(leaf)
        if count > MOST_LEAVES:
            return (
                f"marks more than {MOST_LEAVES:,} values (texts and numbers) as secret, which is the most in one job; "
                "mark fewer places, or send them as one text"
            )
        if characters > MOST_MARKED_CHARACTERS:
            return (
                f"marks more than {MOST_MARKED_CHARACTERS:,} characters as secret, which is the most in one job; "
                "mark fewer places"
            )
    return None


def _pointer_problem(payload: Payload, path: Steps | None, others: list[Steps]) -> str | None:
    field, whole = payload.marked_field, _whole(payload)
    if path is None:
        aside = "; header values are secret without one" if type(payload) is HttpRequest else ""
        return f"must be a JSON pointer into the {field}, such as /{field}/{_example(payload)}{aside}"
    try:
        get(whole, path)
    except LookupError:
        return f"points at nothing in the {field}"
    if not path and whole is None:
        return f"points at the {field}, and there is none"
    if not path and type(payload) is not HttpRequest:
        return f"points at all of the {field}; name the places in it, such as /{field}/{_example(payload)}"
    if any(path[: len(other)] == other or other[: len(path)] == path for other in others):
        return "points at, into or around what another one points at; name each place once"
    return None


def _example(payload: Payload) -> str:
    return "0" if payload.marked_field == "parameters" else "token"


def _still_encrypted(payload: Payload, old: Payload, paths: list[Steps]) -> Iterator[FieldError]:
    """Yields errors for places that are no longer marked and still have their encrypted text: it would be sent."""
    for path, was in list_marked(old):
        if path in paths or not is_encrypted(was):
            continue
        try:
            is_kept = get(_whole(payload), path) == was
        except LookupError:
            continue
        if is_kept:
            pointer = "".join(f"/{escape(step)}" for step in path)
            yield FieldError(
                f"/payload/{payload.marked_field}{pointer}", "was secret and can't be shown: send it again, or mark it"
            )


def encrypted_value_problem(name: str, value: str, old: Payload | None) -> str | None:
    """Returns why a user can't send a value that looks encrypted; None if `old` has the same value there."""
    if old is not None and encrypted_values(old).get(name) == value:
        return None
    return f"The value of {name} {_OURS}."
