"""HTTP by the standard library, for the command line and for forked processes."""

from __future__ import annotations

import pytest

from client.script import answer, scripted
from duetime.client.plain_http import PlainHttp, PlainHttpError

SECONDS = 30.0


def test_a_body_of_unknown_length_is_sent_as_it_is_read() -> None:
    with scripted(answer(200, {})) as script:
        assert PlainHttp(SECONDS).send("POST", script.url, {}, iter([b"one"])).status == 200
    assert script.header("transfer-encoding") == ["chunked"]


def test_a_refusal_before_the_whole_body_was_sent_is_read() -> None:
    """The server reads only the head, responds, and closes the connection."""
    pieces = (b"x" * 65_536 for _ in range(10_000))
    with scripted(answer(413, {"message": "too large"})) as script:
        refused = PlainHttp(SECONDS).send("POST", script.url, {}, pieces)
    assert (refused.status, refused.body) == (413, b'{"message": "too large"}')
    assert next(pieces), "nor was the rest of it read"


def test_proxies_of_the_environment_can_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    with scripted(answer(200, {})) as proxy, scripted(answer(200, {})) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        PlainHttp(SECONDS).send("GET", server.url, {}, None)
        assert (len(proxy.requests), len(server.requests)) == (1, 0)
        PlainHttp(SECONDS, {}).send("GET", server.url, {}, None)
        assert (len(proxy.requests), len(server.requests)) == (1, 1)


def test_a_request_to_a_closed_port_was_not_sent() -> None:
    with scripted() as script:
        pass
    with pytest.raises(PlainHttpError) as error:
        PlainHttp(SECONDS).send("GET", script.url, {}, None)
    assert (error.value.is_refused, error.value.was_sent, error.value.is_timeout) == (True, False, False)
