"""The client of the commands: sends requests with the command line's credentials, and returns JSON as it was received.

Every failure is raised as a `CommandFailed`: no server, a refusal (problem+json) with its fields, or a response that is
not Duetime's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from duetime.cli.credentials import Credentials
from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import DEFAULT_URL
from duetime.client.calls import BASE, PAGE_ROWS, Answer, Call, Value, with_query
from duetime.client.plain_http import Body, PlainHttp, PlainHttpError

TIMEOUT_SECONDS = 60.0
NO_PROXIES: dict[str, str] = {}

Query = Mapping[str, Value]


class Client:
    """`token`: a JWT or an API key. Without one, `credentials` may sign a token."""

    def __init__(
        self, url: str = DEFAULT_URL, timeout_seconds: float = TIMEOUT_SECONDS, token: str | None = None
    ) -> None:
        self.url = _checked_url(url)
        self._timeout = timeout_seconds
        self._http = PlainHttp(timeout_seconds, NO_PROXIES)
        self._credentials = Credentials(token, self.url)

    def wait_at_most(self, seconds: float) -> None:
        """Sets the time limit of requests."""
        self._timeout = seconds
        self._http = PlainHttp(seconds, NO_PROXIES)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.request("GET", path, query)

    def find(self, path: str, query: Query | None = None) -> Any:
        """Like `get`; None if there is no such thing, also if an older server has no such route."""
        answer = self._send("GET", with_query(BASE + path, query or {}), None, {})
        return None if answer.status == 404 else self._accepted(answer)

    def post(self, path: str, body: Any = None) -> Any:
        return self.request("POST", path, body=body)

    def request(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Any:
        """Returns the JSON of the response. `path` is below /api/v1."""
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        return self._accepted(self._send(method, with_query(BASE + path, query or {}), data, headers))

    def post_lines(self, path: str, lines: Iterable[bytes]) -> Any:
        """Sends NDJSON as it is read, without holding all of it in memory."""
        return self._accepted(self._send("POST", BASE + path, lines, {"Content-Type": "application/x-ndjson"}))

    def health(self) -> Any:
        """Returns the health of the server, also when it is degraded."""
        answer = self._send("GET", "/health?verbose=true", None, {})
        return _decoded(answer.body) if answer.status == 503 else self._accepted(answer)

    def pages(self, path: str, name: str, query: Query, most: int) -> Iterator[dict[str, Any]]:
        """Yields the pages of a list (their rows under `name`), up to `most` rows."""
        left, cursor = most, None
        while left > 0:
            answer = self.get(path, {**query, "limit": min(left, PAGE_ROWS), "cursor": cursor})
            yield answer
            left -= len(answer[name])
            cursor = answer["next_cursor"]
            if cursor is None:
                return

    def stream(self, call: Call[Any], silence_seconds: float) -> Iterator[bytes]:
        """Yields the chunks of a stream until the server ends it. Raises PlainHttpError if the connection breaks."""
        http = PlainHttp(silence_seconds, NO_PROXIES)
        with http.open(call.method, self.url + call.path, self._headers(call.headers), None) as response:
            if response.status >= 400:
                self._accepted(Answer(response.status, b"".join(http.chunks(response)), response.headers.get))
            yield from http.chunks(response)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {"Accept": "application/json", "User-Agent": "duetime-cli"}
        return {**own, **self._credentials.headers(), **headers}

    def _send(self, method: str, path: str, body: Body, headers: Mapping[str, str]) -> Answer:
        try:
            return self._http.send(method, self.url + path, self._headers(headers), body)
        except PlainHttpError as error:
            if error.is_refused:
                message = f"no Duetime at {self.url}; start one with: duetime serve"
            elif error.is_timeout:
                message = f"{self.url} did not respond within {self._timeout:g} s"
            else:
                message = f"no response from {self.url}: {error}"
            raise CommandFailed(message) from None

    def _accepted(self, answer: Answer) -> Any:
        decoded = _decoded(answer.body)
        if answer.status < 400:
            return decoded
        if not isinstance(decoded, dict) or "message" not in decoded:
            raise CommandFailed(f"the server at {self.url} is not a Duetime: it responded {answer.status}; check --url")
        fields = tuple(f"{field['pointer'] or 'the body'}: {field['message']}" for field in decoded.get("errors", ()))
        # The message of a response with fields repeats all of them; the title does not.
        message = str(decoded.get("title") if fields else decoded["message"])
        raise CommandFailed(message, self._credentials.advice() if answer.status == 401 else fields)


def _checked_url(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise BadUsage(f"'{url}' is not the URL of a server; write it like {DEFAULT_URL} (--url or DUETIME_URL)")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise CommandFailed("the response is not JSON: the server is not a Duetime; check --url") from None
