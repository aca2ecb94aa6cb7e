"""One interface for both clients, so that a test is written once. It runs the loop of the asynchronous client."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from duetime.client import AsyncClient, AsyncListing, Client
from patience import PATIENCE_SECONDS


class Driven:
    """An AsyncClient, or one of its lists, with the methods of the synchronous one."""

    def __init__(self, runner: asyncio.Runner, driven: AsyncClient | AsyncListing[Any, Any]) -> None:
        self._runner = runner
        self._driven = driven

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driven, name)
        return (lambda *args, **kwargs: self._plain(found(*args, **kwargs))) if callable(found) else found

    def __iter__(self) -> Iterator[Any]:
        return self._plain(self._driven.__aiter__())

    def _plain(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._runner.run(value)
        if isinstance(value, AsyncListing):
            return Driven(self._runner, value)
        return self._steps(value) if inspect.isasyncgen(value) else value

    def _steps(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._runner.run(_step(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._runner.run(items.aclose())


async def _step(items: AsyncGenerator[Any, None]) -> Any:
    return await anext(items)


class Pause:
    """Replaces `sleep`: records the waits of the client, and does not wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def later(self, seconds: float) -> None:
        self.waits.append(seconds)


class Maker:
    """Creates clients of one kind, and closes them at the end."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._runner = asyncio.Runner()
        self._made: list[Any] = []

    def __call__(
        self, url: str | None = None, token: str | None = None, pause: Pause | None = None, **options: Any
    ) -> Any:
        if self._kind == "async":
            sleep = {"sleep": pause.later} if pause else {}
            client: Any = Driven(self._runner, AsyncClient(url, token, **sleep, **options))
        else:
            client = Client(url, token, **({"sleep": pause.waits.append} if pause else {}), **options)
        self._made.append(client)
        return client

    def close(self) -> None:
        for client in self._made:
            client.close()
        self._runner.close()


def until(read: Callable[[], Any], reached: Callable[[Any], bool]) -> Any:
    """Polls until the condition holds: a server in another process has no signal to wait for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.02)
    return value
