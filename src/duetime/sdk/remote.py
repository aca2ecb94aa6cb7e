"""A server, over HTTP: for an app that enqueues, and for a worker."""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar

from duetime.client import AsyncClient, Client, ComeBack, DuetimeError, NotFound, Problem, ServerAway, ServerDefect
from duetime.client.calls import Call, path_of, send
from duetime.domain.work import (
    LONGEST_WAIT_SECONDS,
    Joined,
    Joining,
    Leaving,
    Polled,
    Polling,
    Reported,
    Reporting,
    Wire,
)
from duetime.functions.source import SourceAway, SourceRefused, UnknownWorker

T = TypeVar("T")

PATIENCE_SECONDS = 10.0  # for a response, in addition to the wait of a poll


class RemoteAsking:
    """One client for all threads, and one for each event loop."""

    def __init__(self, url: str | None, token: str | None) -> None:
        self._url = url
        self._token = token
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._async_clients: dict[asyncio.AbstractEventLoop, AsyncClient] = {}

    def ask(self, call: Call[T]) -> T:
        with self._lock:
            if self._client is None:
                self._client = Client(self._url, self._token)
        return self._client.send(call)

    async def ask_async(self, call: Call[T]) -> T:
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other in self._async_clients if other.is_closed()]:
                del self._async_clients[other]
            client = self._async_clients.get(loop)
            if client is None:
                client = self._async_clients[loop] = AsyncClient(self._url, self._token)
        return await client.send(call)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


class RemoteSource:
    """A `functions.source.Source`. It does not retry: the worker decides about retries."""

    def __init__(self, url: str | None, token: str | None) -> None:
        self._client = AsyncClient(url, token, timeout_seconds=LONGEST_WAIT_SECONDS + PATIENCE_SECONDS, retries=0)

    async def join(self, joining: Joining) -> Joined:
        return await self._post("join", joining, Joined)

    async def poll(self, polling: Polling) -> Polled:
        return await self._post("poll", polling, Polled)

    async def report(self, reporting: Reporting) -> Reported:
        return await self._post("report", reporting, Reported)

    async def leave(self, leaving: Leaving) -> None:
        await self._post("leave", leaving, type(None))

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, action: str, body: Wire, answer: type[T]) -> T:
        try:
            return await self._client.send(send("POST", path_of("workers", action), answer, body))
        except NotFound as error:
            raise UnknownWorker(error.message) from None
        except ComeBack as error:
            raise SourceAway(error.message, error.retry_after) from None
        except (ServerAway, ServerDefect) as error:
            raise SourceAway(error.message) from None
        except Problem as error:
            raise SourceRefused(error.message) from None
        except DuetimeError as error:  # not a Duetime's response: a proxy responds while the server is away
            raise SourceAway(error.message) from None
