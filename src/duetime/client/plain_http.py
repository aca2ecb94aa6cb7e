"""HTTP by the standard library, for a process that was forked from one that has used the HTTP library of this client.

That library has threads, which no fork copies, and refuses to start anew in the child. Here each call has a connection
of its own: slower, and with nothing in it that a fork could break.
"""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from duetime.client.calls import Answer

READ = 65_536
NEVER_SENT = (ConnectionRefusedError, socket.gaierror)


class PlainHttpError(Exception):
    """No answer came. `was_sent` as in ServerAway; `is_timeout`: it was waited for in vain."""

    def __init__(self, cause: BaseException) -> None:
        reason = cause.reason if isinstance(cause, urllib.error.URLError) else cause
        super().__init__(str(reason) or type(reason).__name__)
        self.was_sent = not isinstance(reason, NEVER_SENT)
        self.is_timeout = isinstance(reason, TimeoutError)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An API key would go along to wherever that leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


class PlainHttp:
    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirects)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Raises PlainHttpError."""
        with self.open(method, url, headers, body) as response, _told():
            return Answer(response.status, response.read(), response.headers.get)

    @contextmanager
    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer of whatever status, to be read within. Raises PlainHttpError."""
        request = urllib.request.Request(url, body, dict(headers), method=method)
        response: Any
        with _told():
            try:
                response = self._opener.open(request, timeout=self._timeout)
            except urllib.error.HTTPError as refused:
                response = refused
        with response:
            yield response

    @staticmethod
    def chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
        """What comes, as it comes. Raises PlainHttpError."""
        while True:
            with _told():
                chunk = response.read1(READ)
            if not chunk:
                return
            yield chunk

    def close(self) -> None:
        """There is nothing that stays open."""


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise PlainHttpError(error) from None
