"""An embedded app that stops during calls: each call ends, with a result or an error."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duetime import Duetime
from duetime.client.errors import ServerAway
from duetime.sdk.embedded import EmbeddedSource
from patience import PATIENCE_SECONDS


class NeverAnswers:
    """An application in place of the node. `then` is called when the end of the node cancels a request."""

    def __init__(self, then: Any = lambda: None) -> None:
        self.asked = threading.Event()
        self._then = then

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._then()


def test_a_call_during_a_stop_fails_as_possibly_carried_out(app: Duetime) -> None:
    with ThreadPoolExecutor() as threads:
        with app:
            embedded = app._embedded
            assert embedded is not None
            embedded._app = never = NeverAnswers()
            threads_call = threads.submit(app.enqueue, "f")
            assert never.asked.wait(PATIENCE_SECONDS)
            tasks_call = threads.submit(asyncio.run, app.enqueue_async("f"))
            while len(embedded._asked) < 2:
                threading.Event().wait(0.001)
        for call in (threads_call, tasks_call):
            with pytest.raises(ServerAway, match="was stopped during the call; it may have been carried out"):
                call.result(PATIENCE_SECONDS)


def test_a_call_in_the_last_moments_of_a_stop_ends(app: Duetime) -> None:
    """Calls after the loop cancelled its tasks, and before it is closed."""
    with ThreadPoolExecutor() as threads:
        late: list[Any] = []
        ending, sent = threading.Event(), threading.Event()

        def ask_once_more() -> None:
            if not ending.is_set():
                ending.set()
                late.append(threads.submit(embedded.ask, operation))
                assert sent.wait(PATIENCE_SECONDS)

        with app:
            embedded: Any = app._embedded
            operation = app._call("f", (), {}, None, None, ())
            loop = embedded._loop
            call_soon = loop.call_soon_threadsafe
            embedded._app = never = NeverAnswers(ask_once_more)
            first = threads.submit(embedded.ask, operation)
            assert never.asked.wait(PATIENCE_SECONDS)

            def noted(*args: Any, **kwargs: Any) -> Any:
                handle = call_soon(*args, **kwargs)
                if ending.is_set():
                    sent.set()
                return handle

            loop.call_soon_threadsafe = noted
        for call in (first, *late):
            with pytest.raises(ServerAway, match="was stopped during the call"):
                call.result(PATIENCE_SECONDS)
        assert late


def test_a_failed_node_is_logged_and_later_calls_raise(
    app: Duetime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise OSError("the worker can't go on")

    monkeypatch.setattr(EmbeddedSource, "join", broken)
    app.job(name="f")(lambda: None)
    with app:
        embedded = app._embedded
        assert embedded is not None
        assert embedded._thread is not None
        embedded._thread.join(PATIENCE_SECONDS)
        with pytest.raises(RuntimeError, match="is not running") as error:
            app.enqueue("f")
    assert "the worker can't go on" in str(error.value.__cause__)
    assert "the embedded Duetime failed: its jobs do not run any more" in caplog.text
