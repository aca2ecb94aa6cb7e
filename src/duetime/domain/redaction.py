"""Removes secrets from the output of an attempt: a response may echo them, and an error may quote them.

A target may show a secret in another form than it was sent; the common forms are searched for, too. Secrets of fewer
than four characters are not searched for: too much other text contains them.

The work is linear in the length of the secrets (once, in `Redactor`) and in the length of each text, whatever the
secrets are: docs/decisions/0034-bounded-redaction.md.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from urllib.parse import quote

import msgspec

from duetime.domain.http_rules import HIDDEN
from duetime.domain.payloads import HttpRequest, Payload
from duetime.domain.secrets import encrypted_values, list_leaves, list_marked, list_values

SHORTEST = 4
SHORTEST_BASE64 = 8  # of the certain part in the base64 of a text that contains the secret
LONGEST_RESPONSE = 1000  # a response of this length was cut, perhaps inside a secret
PIECE = 32  # characters: a longer form of a secret is searched for in pieces of this length
FEW_STARTS = 16  # up to this number of different beginnings, str.find for each is faster than a check of each character
SORTED_AT_ONCE = 8192  # pieces; a sort holds the interpreter's lock until it ends
UNKNOWN_SIZE = 1 << 30  # of a secret that an early version stored unencrypted: its size is unknown

# These headers describe the content, not the sender. To remove their values would damage most responses.
_NO_SECRETS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "user-agent"}
)
_SCHEMES = frozenset({"apikey", "basic", "bearer", "digest", "key", "negotiate", "token"})  # words before credentials
_WORDS = frozenset({"true", "false", "null", "none"})
_TOKEN = re.compile(r"[^\s;,=\"']{16,}")  # inside a header's value: a cookie's, a bearer's
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")  # the same in all forms but base64
_ESCAPED = re.compile("%[0-9A-F]{2}")


def list_secrets(payload: Payload) -> list[str]:
    """Returns the secrets in a decrypted payload, each once, without those that are too short. Do not store them."""
    found: dict[str, None] = {}
    for name, value in encrypted_values(payload).items():
        if not isinstance(payload, HttpRequest):
            found[value] = None
        elif name.lower() not in _NO_SECRETS:
            found.update(dict.fromkeys(_of_header(value)))
    for _, value in list_marked(payload):
        found.update(dict.fromkeys(list_leaves(value)))
    return [secret for secret in found if len(secret) >= SHORTEST and secret.lower() not in _WORDS]


def _of_header(value: str) -> Iterator[str]:
    """Yields the value, and parts that may be shown alone: the credentials after a scheme, a token, a password."""
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


def size_of_secrets(payload: Payload) -> int:
    """Returns about how many characters of a stored payload are secret, without decrypting them."""
    return sum(len(value) if isinstance(value, str) else UNKNOWN_SIZE for value in list_values(payload))


Span = tuple[int, int]  # begin and end of a part of a text


class Redactor:
    """Hides secrets in texts. Build one for each attempt: it reads a text once, however many secrets there are.

    Each form of a secret is cut into pieces of PIECE characters at most. A text that contains the form contains all of
    its pieces, side by side, so hiding every piece hides the form. At one place of a text, at most one lookup is made
    for each length of a piece (SHORTEST to PIECE), whatever the secrets and the text are.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pieces: set[str] = set()
        lengths: dict[str, set[int]] = {}
        for secret in secrets:
            for form in _forms(secret):
                for piece in _cut(form):
                    self._pieces.add(piece)
                    lengths.setdefault(piece[:SHORTEST], set()).add(len(piece))
        self._lengths = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def size(self) -> int:
        """Returns the number of pieces that are searched for."""
        return len(self._pieces)

    def redact(self, text: str) -> str:
        """Returns the text with every secret hidden, also where two overlap, and the beginning of one at a cut end."""
        spans = self.find(text)
        if len(text) >= LONGEST_RESPONSE:
            begin = len(text) - self.begun(text, SHORTEST)
            if begin == len(text) and spans and len(text) - spans[-1][1] < SHORTEST:
                begin = spans[-1][1]  # too little of the next piece is left to recognize it
            if begin < len(text):
                while spans and spans[-1][1] >= begin:
                    begin = min(begin, spans.pop()[0])
                spans.append((begin, len(text)))
        return hide(text, spans)

    def find(self, text: str, covered: int = 0) -> list[Span]:
        """Returns where secrets are: in order, and joined where they touch. The first `covered` characters are one."""
        spans: list[Span] = []
        begin, end = 0, covered  # of the span that may still grow
        for at in self._candidates(text):
            for length in self._lengths.get(text[at : at + SHORTEST], ()):
                if at + length <= end:
                    break  # the place is hidden already, and shorter pieces end earlier
                if (piece := text[at : at + length]) in self._pieces:
                    if at > end:
                        if end:
                            spans.append((begin, end))
                        begin = at
                    end = max(end, at + len(piece))
                    break
        if end:
            spans.append((begin, end))
        return spans

    def begun(self, text: str, shortest: int = 1) -> int:
        """Returns how many characters the text ends with that are the beginning of a piece, if `shortest` at least."""
        for at in range(max(0, len(text) - PIECE + 1), len(text) - shortest + 1):
            end = text[at:]
            place = bisect_left(self._sorted, end)
            if place < len(self._sorted) and self._sorted[place].startswith(end):
                return len(end)
        return 0

    def _candidates(self, text: str) -> Sequence[int]:
        """Returns the places where a piece may begin, in order."""
        if len(self._lengths) > FEW_STARTS:
            return range(len(text) - SHORTEST + 1)
        return sorted(at for start in self._lengths for at in _all_of(text, start))

    @cached_property
    def _sorted(self) -> Sequence[str]:
        pieces = list(self._pieces)
        pages = (pieces[at : at + SORTED_AT_ONCE] for at in range(0, len(pieces), SORTED_AT_ONCE))
        return list(merge(*map(sorted, pages)))


class StreamRedactor:
    """Hides secrets in a text that comes in parts, also a secret that begins in one part and ends in another.

    It holds back text that may be the beginning of a piece: fewer than PIECE characters.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._covered = 0  # characters of the held text that certainly belong to a secret
        self._ends_hidden = False  # the text that was returned last ended with HIDDEN

    def feed(self, text: str) -> str:
        """Returns the text that can be shown now."""
        text = self._held + text
        return self._pass_on(text, len(text) - self._redactor.begun(text))

    def end(self) -> str:
        """Returns the rest. Call it after the last part."""
        return self._pass_on(self._held, len(self._held))

    def _pass_on(self, text: str, until: int) -> str:
        spans = self._redactor.find(text, self._covered)
        self._held = text[until:]
        # A span that begins later is in the held text: it is found again, and the text before it is shown.
        self._covered = next((end - until for begin, end in spans if begin <= until < end), 0)
        if until == 0:
            return ""
        clipped = [(begin, min(end, until)) for begin, end in spans if begin < until]
        shown = hide(text[:until], clipped)
        if self._ends_hidden and clipped and clipped[0][0] == 0:
            shown = shown.removeprefix(HIDDEN)
        self._ends_hidden = bool(clipped) and clipped[-1][1] == until
        return shown


def redact(text: str, secrets: Iterable[str]) -> str:
    """Returns one text with secrets hidden. For several texts, build one `Redactor`."""
    return Redactor(secrets).redact(text)


def _cut(form: str) -> Iterator[str]:
    """Yields pieces that cover the form. The last one overlaps the one before it, so that none is short."""
    if len(form) <= PIECE:
        yield form
        return
    for at in range(0, len(form) - PIECE, PIECE):
        yield form[at : at + PIECE]
    yield form[-PIECE:]


def _all_of(text: str, start: str) -> Iterator[int]:
    at = text.find(start)
    while at >= 0:
        yield at
        at = text.find(start, at + 1)


def hide(text: str, spans: Sequence[Span]) -> str:
    parts: list[str] = []
    shown_until = 0
    for begin, end in spans:
        parts += [text[shown_until:begin], HIDDEN]
        shown_until = end
    return "".join([*parts, text[shown_until:]]) if spans else text


def _forms(secret: str) -> set[str]:
    """Returns the secret as it is, and as it is written in JSON, URLs, HTML and base64."""
    forms = {secret}
    if not _PLAIN.fullmatch(secret):
        in_json = json.dumps(secret)[1:-1]
        forms.update((msgspec.json.encode(secret).decode()[1:-1], in_json, in_json.replace("/", "\\/")))
        forms.add(html.escape(secret))
        quoted = quote(secret, safe="")
        for escaped in (quoted, quoted.replace("%2F", "/"), quoted.replace("%20", "+")):
            forms.add(escaped)
            forms.add(_ESCAPED.sub(lambda found: found[0].lower(), escaped))
    forms.update(_base64(secret.encode()))
    return forms


def _base64(data: bytes) -> Iterator[str]:
    """Yields the base64 of the secret, and its certain part in the base64 of a longer text, such as user:secret."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        sure = encoded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        if before == 0 or len(sure) >= SHORTEST_BASE64:
            yield sure
            yield sure.replace("+", "-").replace("/", "_")
