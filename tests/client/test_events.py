"""The stream of events, and its resumption after a broken connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.both import Pause
from client.proxy import Proxy
from client.script import LOST, answer, problem, scripted
from client.tokens import token
from duetime.client import ServerAway, Unauthorized

Define = Callable[..., dict[str, Any]]
STREAM = "text/event-stream"
EVENT = 'id: 7\nevent: job.paused\ndata: {"at": "2027-01-01T00:00:00.000Z", "job_id": "x"}\n\n'


def _until_created(events: Iterator[Any], job_id: str) -> list[Any]:
    seen = []
    for event in events:
        seen.append(event)
        if event.kind == "job.created" and event.data["job_id"] == job_id:
            return seen
    raise AssertionError(seen)


def test_no_event_is_lost_or_repeated_when_the_connection_breaks(
    make: Any, proxy: Proxy, client: Any, job: Define
) -> None:
    events = make(proxy.url, token()).events(after=0)
    before = _until_created(events, client.create_job(job()).job_id)
    proxy.cut()
    missed = client.create_job(job()).job_id
    after = _until_created(events, client.create_job(job()).job_id)
    numbers = [event.number for event in before + after if event.number is not None]
    assert len(numbers) == len(before + after), "no reset"
    assert numbers == sorted(set(numbers))
    assert missed in [event.data.get("job_id") for event in after]
    assert before[-1].at is not None
    assert len(proxy.seen(b"GET /api/v1/events")) == 2
    events.close()


def test_a_break_before_the_first_event_yields_a_reset(make: Any) -> None:
    """There is no event number to resume from, so events may have been lost."""
    with scripted(answer(200, ": following\n\n", STREAM), answer(200, EVENT, STREAM)) as script:
        events = make(script.url, pause=Pause()).events()
        assert [next(events).kind for _ in range(2)] == ["reset", "job.paused"]
        events.close()


def test_a_break_before_the_first_event_is_resumed_from_the_id_that_the_server_sent(make: Any) -> None:
    with scripted(answer(200, ": following\n\nid: 6\n\n", STREAM), answer(200, EVENT, STREAM)) as script:
        events = make(script.url, pause=Pause()).events()
        assert next(events).kind == "job.paused"
        assert script.header("last-event-id") == ["", "6"]
        events.close()


def test_a_stream_that_ends_is_resumed_after_its_last_event(make: Any) -> None:
    cut_short = EVENT + "id: 8\nevent: job.resumed\ndata: {"
    whole = EVENT.replace("id: 7", "id: 8")
    with scripted(answer(200, cut_short, STREAM), LOST, answer(200, whole, STREAM)) as script:
        events = make(script.url, pause=Pause()).events(after=6)
        assert [(event.number, event.kind) for event in (next(events), next(events))] == [
            (7, "job.paused"),
            (8, "job.paused"),
        ]
        assert script.header("last-event-id") == ["6", "7", "7"]
        events.close()


def test_a_stream_fails_when_the_server_stops_responding(make: Any) -> None:
    pause = Pause()
    with scripted(answer(200, EVENT, STREAM), LOST, LOST) as script:
        events = make(script.url, pause=pause, retries=2).events(after=0)
        next(events)
        with pytest.raises(ServerAway):
            next(events)
    assert len(pause.waits) == 2


def test_an_expired_token_ends_a_stream(make: Any) -> None:
    with scripted(answer(200, EVENT, STREAM), problem(401, "UNAUTHORIZED")) as script:
        events = make(script.url, pause=Pause()).events(after=0)
        next(events)
        with pytest.raises(Unauthorized):
            next(events)


def test_a_stream_waits_for_an_overloaded_server(make: Any) -> None:
    pause = Pause()
    with scripted(problem(503, "OVERLOADED", retry_after="10"), answer(200, EVENT, STREAM)) as script:
        events = make(script.url, pause=pause, jitter=lambda: 0.0).events(after=0)
        assert next(events).number == 7
        events.close()
    assert pause.waits == [10.0]
