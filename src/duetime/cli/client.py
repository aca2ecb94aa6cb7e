"""A small client of the API, on the standard library alone. It knows HTTP and problems, and no command.

Every failure becomes a `CommandFailed` with a sentence: no server, a refusal (problem+json) with its fields, an answer
that is none of ours.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from duetime.cli.credentials import Credentials
from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.following import Told, read_events
from duetime.cli.options import DEFAULT_URL

BASE_PATH = "/api/v1"
PAGE = 100  # the most that a list answers at once
TIMEOUT_SECONDS = 60.0

Query = Mapping[str, str | int | bool | None]


class Client:
    """`token` is a JWT or an API key; without one, see `credentials`."""

    def __init__(
        self, url: str = DEFAULT_URL, timeout_seconds: float = TIMEOUT_SECONDS, token: str | None = None
    ) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise BadUsage(f"'{url}' is not the URL of a server; write it like {DEFAULT_URL} (--url or DUETIME_URL)")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._timeout = timeout_seconds
        self._credentials = Credentials(token, self.url)

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.request("GET", path, query)

    def post(self, path: str, body: Any = None) -> Any:
        return self.request("POST", path, body=body)

    def request(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Any:
        """The JSON that the API answered. `path` is below /api/v1."""
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        return self._accepted(*self._send(method, f"{BASE_PATH}{path}{_query(query)}", data, headers))

    def post_lines(self, path: str, lines: Iterable[bytes]) -> Any:
        """POST NDJSON, sent as it is read: nothing is held here but the piece under way."""
        headers = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
        return self._accepted(*self._send("POST", f"{BASE_PATH}{path}", lines, headers))

    def health(self) -> Any:
        """How the server is: an answer, whether it is well or not."""
        status, body = self._send("GET", "/health?verbose=true", None, {})
        return _decoded(body) if status in (200, 503) else self._accepted(status, body)

    def pages(self, path: str, name: str, query: Query, most: int) -> Iterator[dict[str, Any]]:
        """Answers of a list (its rows under `name`), page after page, until there are `most` rows or no more."""
        left, cursor = most, None
        while left > 0:
            answer = self.get(path, {**query, "limit": min(left, PAGE), "cursor": cursor})
            yield answer
            left -= len(answer[name])
            cursor = answer["next_cursor"]
            if cursor is None:
                return

    def stream(self, path: str, last: str | None, silence_seconds: float) -> Iterator[Told]:
        """Server-sent events, later than `last`, until the server ends them. Raises OSError if the line breaks."""
        connection = self._kind(self._host, self._port, timeout=silence_seconds)
        headers = {"Accept": "text/event-stream", "User-Agent": "duetime-cli", **self._credentials.headers()}
        headers |= {} if last is None else {"Last-Event-ID": last}
        try:
            connection.request("GET", f"{self._prefix}{BASE_PATH}{path}", None, headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                self._accepted(answer.status, answer.read())
            yield from read_events(answer)
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection = self._kind(self._host, self._port, timeout=self._timeout)
        headers = {"Accept": "application/json", "User-Agent": "duetime-cli", **self._credentials.headers(), **headers}
        try:
            # It may refuse, and close, before it has read everything: its answer then says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    method, self._prefix + path, body, headers, encode_chunked="Transfer-Encoding" in headers
                )
            answer = connection.getresponse()
            return answer.status, answer.read()
        except ConnectionRefusedError:
            raise CommandFailed(f"no Duetime at {self.url}; start one with: duetime serve") from None
        except TimeoutError:
            raise CommandFailed(f"{self.url} did not answer within {self._timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(f"no answer from {self.url}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()

    def _accepted(self, status: int, body: bytes) -> Any:
        answer = _decoded(body)
        if status < 400:
            return answer
        if not isinstance(answer, dict) or "message" not in answer:
            raise CommandFailed(f"the server answered {status}, and not as Duetime does; check --url")
        fields = tuple(f"{field['pointer'] or 'the body'}: {field['message']}" for field in answer.get("errors", ()))
        # With fields, the message is those in a row: the title says it once.
        message = str(answer.get("title") if fields else answer["message"])
        raise CommandFailed(message, self._credentials.advice() if status == 401 else fields)


def segment(text: str) -> str:
    """Text as one part of a path."""
    return quote(text, safe="")


def _query(query: Query | None) -> str:
    given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _word(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise CommandFailed("the server's answer is not JSON: it is no Duetime; check --url") from None
