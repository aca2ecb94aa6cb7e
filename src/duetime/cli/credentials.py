"""What the command line proves itself with: a token or API key that was given, or, on the server's own machine, a
token that it signs itself because it can read JWT_SECRET as the server does.

What it signs itself goes to this machine alone: a server elsewhere that was named by mistake would hold an admin's
token.
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
    """`given` is what --token or DUETIME_TOKEN says."""

    def __init__(self, given: str | None, url: str) -> None:
        self._given = _checked(given.strip()) if given else ""
        parts = urlsplit(url)
        self._is_here = _is_here(parts.hostname or "")
        self._is_plain = parts.scheme == "http" and not self._is_here
        self._warned = False

    def headers(self) -> dict[str, str]:
        """For the next request: what is signed here is signed anew, as an import may take longer than it lives."""
        if self._given:
            self._warn_once()
            # The server's own keys begin so; everything else is a JWT.
            return {"X-API-Key": self._given} if self._given.startswith("dt_") else _bearer(self._given)
        return _bearer(token) if self._is_here and (token := _own_token()) else {}

    def advice(self) -> tuple[str, ...]:
        """What a person can do who was told that they are nobody (401)."""
        if self._given:
            return ()
        if not self._is_here and load_on_demand().jwt_secret:
            return (
                "JWT_SECRET is used for a server on this machine only; for another one:",
                'DUETIME_TOKEN="$(duetime token create --jwt --user me --role admin)" duetime …',
            )
        return ("give a token or an API key with --token or DUETIME_TOKEN",)

    def _warn_once(self) -> None:
        if self._is_plain and not self._warned:
            self._warned = True
            sys.stderr.write("duetime: warning: the token is sent in the clear; use https:// for another machine\n")


def _checked(given: str) -> str:
    """What can't stand in a header is refused here, and not shown."""
    if not given.isascii() or not given.isprintable() or " " in given:
        raise BadUsage("--token (or DUETIME_TOKEN) is neither a JWT nor an API key: it has signs that neither has")
    return given


def _is_here(host: str) -> bool:
    """0.0.0.0 and :: are what a server listens on; a client that calls them reaches its own machine."""
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
