"""Credentials of the command line: the given token or API key; or a token that it signs, if it can read JWT_SECRET.

A token that it signs is an admin's, so it is sent to servers on this machine only.
"""

from __future__ import annotations

import ipaddress
import sys
from urllib.parse import urlsplit

from duetime.cli.errors import BadUsage
from duetime.domain.loopback import is_loopback
from duetime.settings.loading import load_on_demand

OWN_SECONDS = 60
OWN_CLAIMS = {"user_id": "cli", "role": "admin", "tier": "enterprise", "tenant": "default"}


class Credentials:
    """`given`: the value of --token or DUETIME_TOKEN."""

    def __init__(self, given: str | None, url: str) -> None:
        self._given = _checked(given.strip()) if given else ""
        parts = urlsplit(url)
        self._is_here = _is_here(parts.hostname or "")
        self._is_plain = parts.scheme == "http" and not self._is_here
        self._warned = False

    def headers(self) -> dict[str, str]:
        """Returns the headers of the next request. A token is signed for each request: it lasts for a minute."""
        if self._given:
            self._warn_once()
            # API keys have this prefix; anything else is a JWT.
            return {"X-API-Key": self._given} if self._given.startswith("dt_") else _bearer(self._given)
        return _bearer(token) if self._is_here and (token := _own_token()) else {}

    def advice(self) -> tuple[str, ...]:
        """Returns advice for a request that was not authenticated (401)."""
        if self._given:
            return ()
        if not self._is_here and load_on_demand().jwt_secret:
            return (
                "JWT_SECRET is used for servers on this machine only; for another server:",
                'DUETIME_TOKEN="$(duetime token create --jwt --user me --role admin)" duetime …',
            )
        return ("give a token or an API key with --token or DUETIME_TOKEN",)

    def _warn_once(self) -> None:
        if self._is_plain and not self._warned:
            self._warned = True
            sys.stderr.write("duetime: warning: the token is sent unencrypted; use https:// for another machine\n")


def _checked(given: str) -> str:
    """Refuses a token that can't be in a header, without showing it."""
    if not given.isascii() or not given.isprintable() or " " in given:
        raise BadUsage(
            "--token (or DUETIME_TOKEN) is neither a JWT nor an API key: it has spaces or special characters"
        )
    return given


def _is_here(host: str) -> bool:
    """Returns whether the host is this machine. 0.0.0.0 and :: are, too, for a client."""
    try:
        return is_loopback(host) or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _own_token() -> str | None:
    settings = load_on_demand()
    if not settings.jwt_secret:
        return None
    import time

    from duetime.api.auth.jwks import BadKeys
    from duetime.api.auth.tokens import sign

    try:
        return sign(
            settings.jwt_secret, settings.jwt_issuer, settings.jwt_audience, OWN_CLAIMS,
            time.time_ns() // 1_000_000, OWN_SECONDS,
        )  # fmt: skip
    except BadKeys as error:
        raise BadUsage(str(error)) from None


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
