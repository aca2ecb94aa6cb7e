"""Takes secrets out of what came back from an attempt: an answer that echoes them, an error that quotes them.

A target may show a secret in another form than it got it; the common ones are looked for, too. Below four characters
nothing is looked for: too much else reads like it.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from duetime.domain.http_rules import HIDDEN
from duetime.domain.payloads import HttpRequest, Payload
from duetime.domain.secrets import list_marked, sealed_values

SHORTEST = 4
SHORTEST_BASE64 = 8  # of what is sure in the base64 of more than the secret
LONGEST_RESPONSE = 1000  # what is as long was cut, maybe inside a secret

# They say what kind of thing is sent, not by whom: to take these words out would spoil every other answer.
_NO_SECRETS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "user-agent"}
)
_SCHEMES = frozenset({"apikey", "basic", "bearer", "digest", "key", "negotiate", "token"})  # said before credentials
_WORDS = frozenset({"true", "false", "null", "none"})
_TOKEN = re.compile(r"[^\s;,=\"']{16,}")  # inside a header's value: a cookie's, a bearer's
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")  # the same in all forms but base64
_ESCAPED = re.compile("%[0-9A-F]{2}")


def list_secrets(payload: Payload) -> list[str]:
    """What must not be kept of an attempt with this payload, which is plain. Each once, and none that is too short."""
    found: dict[str, None] = {}
    for name, value in sealed_values(payload).items():
        if not isinstance(payload, HttpRequest):
            found[value] = None
        elif name.lower() not in _NO_SECRETS:
            found.update(dict.fromkeys(_of_header(value)))
    for _, value in list_marked(payload):
        found.update(dict.fromkeys(_leaves(value)))
    return [secret for secret in found if len(secret) >= SHORTEST and secret.lower() not in _WORDS]


def _of_header(value: str) -> Iterator[str]:
    """The value, and what of it may be shown alone: the credentials after a scheme, a token, a password."""
    scheme, _, credentials = value.partition(" ")
    scheme, credentials = scheme.lower(), credentials.strip()
    if scheme not in _SCHEMES or len(credentials) < SHORTEST:
        yield value
        yield from _TOKEN.findall(value)
        return
    yield credentials
    if scheme == "basic":
        try:
            yield (pair := b64decode(credentials, validate=True).decode())
        except (BadBase64, ValueError):
            return
        yield pair.partition(":")[2]
    elif not _TOKEN.fullmatch(credentials):
        yield from _TOKEN.findall(credentials)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield msgspec.json.encode(value).decode()


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret in it hidden, also where two overlap, and the beginning of one at a cut end."""
    spans: list[tuple[int, int]] = []
    is_cut = len(text) >= LONGEST_RESPONSE
    for secret in secrets:
        for form in _forms(secret):
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form)))
                at = text.find(form, at + 1)
            if is_cut and (rest := _begun(text, form)):
                spans.append((len(text) - rest, len(text)))
    return _hide(text, sorted(spans)) if spans else text


def _begun(text: str, form: str) -> int:
    """How many characters of the beginning of `form` the text ends with; 0 if they are too few to count."""
    first = form[:SHORTEST]
    at = text.find(first, max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at = text.find(first, at + 1)
    return 0


def _hide(text: str, spans: list[tuple[int, int]]) -> str:
    parts: list[str] = []
    end = 0
    for begin, until in spans:
        if begin > end or not parts:
            parts += [text[end:begin], HIDDEN]
        end = max(end, until)
    return "".join([*parts, text[end:]])


def _forms(secret: str) -> set[str]:
    """As it is, and as JSON, URLs, HTML and base64 have it."""
    forms = {secret}
    if not _PLAIN.fullmatch(secret):
        forms.add(msgspec.json.encode(secret).decode()[1:-1])
        forms.add(json.dumps(secret)[1:-1])
        forms.add(json.dumps(secret)[1:-1].replace("/", "\\/"))
        forms.add(html.escape(secret))
        for escaped in (quote(secret, safe=""), quote(secret), quote(secret, safe="").replace("%20", "+")):
            forms.add(escaped)
            forms.add(_ESCAPED.sub(lambda found: found[0].lower(), escaped))
    forms.update(_base64(secret.encode()))
    return forms


def _base64(data: bytes) -> Iterator[str]:
    """Of the secret alone, and what is sure of it in the base64 of a longer text, such as user:secret."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        sure = encoded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        if before == 0 or len(sure) >= SHORTEST_BASE64:
            yield sure
            yield sure.replace("+", "-").replace("/", "_")
