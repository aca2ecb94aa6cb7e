"""The server that a client talks to: where it is, and what the client proves itself with. No I/O."""

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
READ_AHEAD = 0  # of a stream: with more, the library would hold back what came until there is that much
_NOT_CONNECTED = "client error (Connect)"  # what the library says of a request that never left

B = TypeVar("B", bound=BaseClientBuilder)


def configured(builder: B, timeout: timedelta) -> B:
    """No redirect is followed: an API key would go along to wherever that leads."""
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
        """Of a request that is about to be sent. Raises ClientClosed."""
        if self.is_closed:  # the library may still send what comes right after its end
            raise _closed(call)
        return {**self._headers, **call.headers}

    def away(self, call: Call[Any], error: RequestError) -> ServerAway:
        """What the library says about a request that got no answer, in our words. Raises ClientClosed if it was us."""
        if isinstance(error, ClientClosedError):
            raise _closed(call)
        # The library's ConnectError is also raised when a connection breaks after all was sent: its causes tell.
        causes = [cause["message"] for cause in error.details["causes"] or ()]
        cause = causes[-1] if causes else type(error).__name__
        return self.lost(call, cause, _NOT_CONNECTED not in causes, isinstance(error, RequestTimeoutError))

    def lost(self, call: Call[Any], cause: str, was_sent: bool, is_timeout: bool) -> ServerAway:
        if not was_sent:
            hint = "start one with `duetime serve`, or check the URL (DUETIME_URL)"
            return ServerAway(f"no Duetime at {self.url}: {cause}; {hint}", was_sent=False)
        if is_timeout:
            message = f"{self.url} did not answer {call} within {self._timeout_seconds:g} s"
        else:
            message = f"the connection to {self.url} broke during {call}: {cause}"
        if not call.may_repeat:
            message += "; it may have been carried out or not: look before you send it again"
        return ServerAway(message, was_sent=True)

    def ended(self, call: Call[Any]) -> ServerAway:
        """A stream that the server has closed though more could follow: it stops, or the token has expired."""
        return ServerAway(f"{self.url} ended {call}", was_sent=True)


def _closed(call: Call[Any]) -> ClientClosed:
    return ClientClosed(f"{call} was not sent, or not to its end: this client is closed; make another one")


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
        raise ValueError("the token is neither a JWT nor an API key: it has signs that neither has")  # and is not shown
    return {"X-API-Key": token} if token.startswith("dt_") else {"Authorization": f"Bearer {token}"}
