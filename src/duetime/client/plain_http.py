"""HTTP by the standard library, with a new connection for each call.

The command line uses it because it is imported quickly. A forked process uses it if its parent has used the HTTP
library of this client: the library's threads are not copied, and it refuses to start again in the child.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from duetime.client.calls import Answer

READ = 65_536
NEVER_SENT = (ConnectionRefusedError, socket.gaierror)

Body = bytes | Iterable[bytes] | None


class PlainHttpError(Exception):
    """There was no response. `was_sent` as in ServerAway; `is_refused`: the port is closed."""

    def __init__(self, cause: BaseException) -> None:
        reason = cause.reason if isinstance(cause, urllib.error.URLError) else cause
        super().__init__(str(reason) or type(reason).__name__)
        self.was_sent = not isinstance(reason, NEVER_SENT)
        self.is_refused = isinstance(reason, ConnectionRefusedError)
        self.is_timeout = isinstance(reason, TimeoutError)


class _Connection(http.client.HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        """Ignores a connection that breaks while sending: the server may have refused the request, and responds."""
        self.connect()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().request(*args, **kwargs)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the API key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class PlainHttp:
    """`proxies`: None for those of the environment."""

    def __init__(self, timeout_seconds: float, proxies: dict[str, str] | None = None) -> None:
        self._timeout = timeout_seconds
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _Connections, _NoRedirects)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Body) -> Answer:
        """Returns the response. An iterable body is sent as it is read. Raises PlainHttpError."""
        with self.open(method, url, headers, body) as response, _translated_errors():
            return Answer(response.status, response.read(), response.headers.get)

    @contextlib.contextmanager
    def open(self, method: str, url: str, headers: Mapping[str, str], body: Body) -> Iterator[http.client.HTTPResponse]:
        """Yields a response of any status, to read it. Raises PlainHttpError."""
        request = urllib.request.Request(url, body, dict(headers), method=method)
        response: Any
        with _translated_errors():
            try:
                response = self._opener.open(request, timeout=self._timeout)
            except urllib.error.HTTPError as refused:
                response = refused
        with response:
            yield response

    @staticmethod
    def chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yields the body in chunks, as they are received. Raises PlainHttpError."""
        while True:
            with _translated_errors():
                chunk = response.read1(READ)
            if not chunk:
                return
            yield chunk

    def close(self) -> None:
        """Does nothing: no connection stays open."""


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise PlainHttpError(error) from None
