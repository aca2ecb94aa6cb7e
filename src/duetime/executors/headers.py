"""Builds request headers: identity, fencing token and signature of an attempt, and the job's own headers.

`webhook-*` headers follow Standard Webhooks. `Duetime-*` headers are ours. `Idempotency-Key` and `traceparent` have
their usual meaning. A job may set any other header, including `User-Agent` and `Content-Type`.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from duetime import __version__
from duetime.domain.execution import Claim
from duetime.domain.http_rules import header_problem
from duetime.domain.sampling import attempt_span_id, trace_id

USER_AGENT = f"Duetime/{__version__}"
_DEFAULTS = (
    ("user-agent", f"User-Agent: {USER_AGENT}\r\n"),
    ("accept", "Accept: */*\r\n"),
    ("accept-encoding", "Accept-Encoding: identity\r\n"),
)
_SECRET_PREFIX = "whsec_"
_encode_json = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode


def signing_keys(secrets: Sequence[str]) -> tuple[bytes, ...]:
    """Returns the keys of secrets: `whsec_` + base64, or any text as it is.

    Raises ValueError if a secret is invalid; the message never holds the secret.
    """
    return tuple(_key(secret) for secret in secrets)


def _key(secret: str) -> bytes:
    if not secret.startswith(_SECRET_PREFIX):
        key = secret.encode()
    else:
        try:
            key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise ValueError("A signing secret starts with whsec_ but goes on with no base64.") from None
    if not key:
        raise ValueError("A signing secret is empty.")
    return key


def signature(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Returns Standard Webhooks v1 signatures, one per key: receivers can use the old key while keys rotate."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return " ".join(f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys)


def encode_body(body: Any) -> tuple[bytes, str | None]:
    """Returns the bytes to send and their content type (None for no body).

    Raises ValueError or TypeError if the body can't be written as JSON.
    """
    if body is None:
        return b"", None
    if isinstance(body, msgspec.Raw):  # the body of a large job is JSON text already (`domain.held_specs`)
        held = bytes(body)
        if not held.startswith(b'"'):
            return held, "application/json"
        body = _decode_text(held)
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return _encode_json(body), "application/json"


def check_headers(headers: Mapping[str, str]) -> list[str]:
    """Returns the problems of a job's own headers, one sentence each; empty if the headers can be sent."""
    return [problem for name, value in headers.items() if (problem := header_problem(name, value))]


def job_headers(headers: Mapping[str, str], content_type: str | None) -> str:
    """Returns the job's own header lines, and a default line for each default header that the job does not set."""
    if not headers:
        return _defaults(content_type)
    given = {name.lower() for name in headers}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    lines += [line for name, line in _DEFAULTS if name not in given]
    if content_type is not None and "content-type" not in given:
        lines.append(f"Content-Type: {content_type}\r\n")
    return "".join(lines)


@lru_cache(maxsize=8)
def _defaults(content_type: str | None) -> str:
    own = "".join(line for _, line in _DEFAULTS)
    return own if content_type is None else f"{own}Content-Type: {content_type}\r\n"


def attempt_headers(
    claim: Claim, timestamp: int, body: bytes, keys: Sequence[bytes], *, is_sampled: bool = False
) -> str:
    """Returns the header lines that Duetime sets for an attempt, each with its line end.

    `is_sampled`: the attempt's span is exported.
    """
    execution_id = claim.execution_id
    lines = (
        f"webhook-id: {execution_id}\r\n"
        f"webhook-timestamp: {timestamp}\r\n"
        f"Idempotency-Key: {execution_id}\r\n"
        f"Duetime-Job-Id: {claim.job_id}\r\n"
        f"Duetime-Scheduled-At: {rfc3339(claim.scheduled_at)}\r\n"
        f"Duetime-Attempt: {claim.attempt}\r\n"
        f"Duetime-Fencing-Token: {claim.token}\r\n"
        f"Duetime-Trigger: {claim.trigger}\r\n"
        f"traceparent: 00-{trace_id(execution_id)}-{attempt_span_id(claim.token, claim.attempt)}-0{is_sampled:d}\r\n"
    )
    if keys:
        lines += f"webhook-signature: {signature(keys, execution_id, timestamp, body)}\r\n"
    return lines


@lru_cache(maxsize=1024)  # the executions of a burst are due at the same instant
def rfc3339(instant_ms: int) -> str:
    seconds, ms = divmod(instant_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"
