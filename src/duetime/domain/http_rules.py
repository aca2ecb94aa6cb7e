"""Rules for the HTTP request of a job that need no network and no settings.

The API checks them when a job is created, and the executor again before it sends. Whether the host may be called is not
decided here: that depends on its addresses at the moment of the call (`executors/guard.py`).

Header names that belong to Duetime or to the connection are refused, not dropped: the author of a job that sets
`webhook-signature` must see at once that the header is not sent.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_URL_LENGTH = 2048
MAX_PORT = 65_535
LONGEST_REQUEST_SECONDS = 3600
MAX_HEADER_VALUE_LENGTH = 8192
HIDDEN = "********"  # what responses show instead of a header's value

_URL = re.compile(r"(?i:https?)://(?P<authority>[^/?#]*)")
# Matches nearly all URLs, in a third of the time of the checks below.
_PLAIN_URL = re.compile(
    r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?(?:[/?][!-\[\]-~]*)?"
)
_PORT = re.compile(r"(?::[0-9]{0,5})?")
_FORBIDDEN_IN_URL = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Visible ASCII, blanks inside, and the rest of latin-1: the characters that RFC 9110 allows in a field value.
_FIELD_VALUE = re.compile(r"(?:[\x21-\x7e\xa0-\xff](?:[\t\x20-\x7e\xa0-\xff]*[\x21-\x7e\xa0-\xff])?)?")

_OURS = frozenset({"idempotency-key", "traceparent"})
_OUR_PREFIXES = ("webhook-", "duetime-")
_OF_THE_CONNECTION = frozenset({
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip


def url_problem(url: str) -> str | None:
    """Returns why this can't be a job's URL, as a sentence; None if it can. Checks the text only."""
    if _PLAIN_URL.fullmatch(url) and len(url) <= MAX_URL_LENGTH:
        return None
    if len(url) > MAX_URL_LENGTH:
        return f"The URL is longer than {MAX_URL_LENGTH} characters."
    if _FORBIDDEN_IN_URL.search(url):
        return "The URL holds a space, a backslash or a control character; percent-encode it."
    match = _URL.match(url)
    if match is None:
        return "The URL must start with http:// or https://."
    authority = match["authority"]
    if "@" in authority:
        return "The URL holds a user name or password; send an Authorization header instead."
    if "%" in authority:
        return "The host of the URL holds a percent sign: no zone ids, no percent-encoding there."
    if not authority or authority.startswith(":"):
        return "The URL has no host."
    host_end = authority.rfind("]") + 1 or authority.find(":")
    port = authority[host_end:] if host_end >= 0 else ""
    if not _PORT.fullmatch(port) or not 1 <= int(port[1:] or 80) <= MAX_PORT:
        return f"The port of the URL is not a number between 1 and {MAX_PORT}."
    return None


def header_problem(name: str, value: str) -> str | None:
    """Returns why a job can't set this header, without its value, which may be a secret; None if it can."""
    problem = _name_problem(name)
    if problem is not None:
        return problem
    if value == HIDDEN:
        return f"The value of {name} is what responses show instead of it; send the value, or leave the header out."
    if len(value) > MAX_HEADER_VALUE_LENGTH:
        return f"The value of {name} is longer than {MAX_HEADER_VALUE_LENGTH} characters."
    if not _FIELD_VALUE.fullmatch(value):
        return (
            f"The value of {name} starts or ends with a blank, or holds a line break, a control character "
            "or one outside latin-1."
        )
    return None


@lru_cache(maxsize=1024)
def _name_problem(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return f"{name!r} is not a header name: use letters, digits and hyphens."
    lower = name.lower()
    if lower in _OURS or lower.startswith(_OUR_PREFIXES):
        return f"{name} is set by Duetime on every request; use another name."
    if lower in _OF_THE_CONNECTION:
        return f"{name} belongs to the connection, not to the job; leave it out."
    return None
