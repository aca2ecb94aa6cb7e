"""The server of a client: its URL, and the client's credentials. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pyreqwest.client import BaseClientBuilder
from pyreqwest.exceptions import ClientClosedError, RequestError, RequestTimeoutError

import duetime
from duetime.client.calls import Call
from duetime.client.errors import ClientClosed, ServerAway

DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_SECONDS = 5.0
READ_AHEAD = 0  # of a stream: otherwise the library holds data back until it has this much
_NOT_CONNECTED = "client error (Connect)"  # the library's message for a request that was not sent

B = TypeVar("B", bound=BaseClientBuilder)


def configured(builder: B, timeout: timedelta) -> B:
    """Sets the timeouts. Follows no redirect: it would send the API key to another server."""
    builder.read_timeout(timeout).connect_timeout(min(timeout, timedelta(seconds=CONNECT_SECONDS)))
    return builder.follow_redirects(False)


class Server:
    """`url` and `token` are taken from DUETIME_URL and DUETIME_TOKEN if they are None. `is_closed`: nothing is sent."""

    is_closed = False

    def __init__(self, url: str | None, token: str | None, timeout_seconds: float) -> None:
        self.url = _checked_url(url or os.environ.get("DUETIME_URL") or DEFAULT_URL)
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": "application/json", "User-Agent": f"duetime-python/{duetime.__version__}"}
        self._headers |= _credential(token if token is not None else os.environ.get("DUETIME_TOKEN", ""))

    def headers(self, call: Call[Any]) -> Mapping[str, str]:
        """Returns the headers of a request. Raises ClientClosed."""
        if self.is_closed:  # the library may still send a request right after its close
            raise _closed(call)
        return {**self._headers, **call.headers}

    def away(self, call: Call[Any], error: RequestError) -> ServerAway:
        """Translates an error of the library. Raises ClientClosed if this client was closed."""
        if isinstance(error, ClientClosedError):
            raise _closed(call)
        # The library also raises ConnectError if the connection breaks after the request: the causes differ.
        causes = [cause["message"] for cause in error.details["causes"] or ()]
        cause = causes[-1] if causes else type(error).__name__
        return self.lost(call, cause, _NOT_CONNECTED not in causes, isinstance(error, RequestTimeoutError))

    def lost(self, call: Call[Any], cause: str, was_sent: bool, is_timeout: bool) -> ServerAway:
        if not was_sent:
            hint = "start one with `duetime serve`, or check the URL (DUETIME_URL)"
            return ServerAway(f"no Duetime at {self.url}: {cause}; {hint}", was_sent=False)
        if is_timeout:
            message = f"{self.url} did not respond to {call} within {self._timeout_seconds:g} s"
        else:
            message = f"the connection to {self.url} broke during {call}: {cause}"
        if not call.may_repeat:
            message += "; it may have been carried out or not: check before you send it again"
        return ServerAway(message, was_sent=True)

    def ended(self, call: Call[Any]) -> ServerAway:
        """Returns the error for a stream that the server closed early: it stops, or the token expired."""
        return ServerAway(f"{self.url} ended {call}", was_sent=True)


def _closed(call: Call[Any]) -> ClientClosed:
    return ClientClosed(f"{call} was not sent, or was interrupted: this client is closed; create another one")


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{url}' is not the URL of a server; write it like {DEFAULT_URL}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _credential(token: str) -> dict[str, str]:
    token = token.strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token is neither a JWT nor an API key: it has spaces or special characters")
    return {"X-API-Key": token} if token.startswith("dt_") else {"Authorization": f"Bearer {token}"}
