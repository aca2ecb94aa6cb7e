"""Alert channels: where a tenant's notices are sent, and what users see of their URLs. Pure.

A channel of the kind `webhook` gets our own request: JSON, signed with the tenant's key. Every other service is reached
through apprise, whose URLs name the service by their scheme and hold its tokens: slack://, tgram://, mailtos://. So
nothing of such a URL is ever shown but the scheme.
"""

from __future__ import annotations

import re
from enum import StrEnum

from duetime.domain.errors import Conflict
from duetime.domain.http_rules import url_problem


class Kind(StrEnum):
    WEBHOOK = "webhook"
    APPRISE = "apprise"


LONGEST_URL = 2048

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,31})://", re.IGNORECASE)
_WEB = ("http", "https")
_HOST = re.compile(r"https?://(?:[^/?#\\]*@)?([^/?#@\\]+)", re.IGNORECASE)


def check_channels(count: int, is_known: bool, limit: int) -> None:
    """Raises Conflict if a tenant with `count` channels can't add one. An existing one (`is_known`) can change."""
    if count >= limit and not is_known:
        raise Conflict(
            f"there are {count} alert channels, which is the most a tenant may have; remove one first, or ask the "
            "operator (TENANT_CHANNELS_LIMIT)"
        )


def scheme_of(url: str) -> str | None:
    """Returns the scheme of a URL in lower case; None if it has none."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else None


def channel_url_problem(kind: Kind, url: str) -> str | None:
    """Returns what is wrong with the form of a channel's URL; None if nothing is. The sentence never holds the URL."""
    if len(url) > LONGEST_URL:
        return f"is longer than {LONGEST_URL} characters"
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        return "has a blank or a control character; write it as %20 and the like"
    if kind is Kind.WEBHOOK:
        return url_problem(url)
    return None if scheme_of(url) else "has no scheme, such as slack:// or mailtos:// (docs/how-to/alert-channels.md)"


def kind_of(url: str) -> Kind:
    """Returns the kind of a channel whose author names none: a plain URL gets our own request."""
    return Kind.WEBHOOK if scheme_of(url) in _WEB else Kind.APPRISE


def shown_url(kind: Kind, url: str) -> str:
    """Returns what users see of a URL: its scheme, and the host if it is a host. (In slack:// a token stands there.)"""
    scheme = scheme_of(url) or ""
    host = _HOST.match(url) if kind is Kind.WEBHOOK or scheme in _WEB else None
    return f"{scheme}://{host[1].lower()}/…" if host else f"{scheme}://…"
