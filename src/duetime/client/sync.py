"""The client for programs with threads. `aio.py` has the same methods for those with an event loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar

from pyreqwest.client import SyncClient, SyncClientBuilder
from pyreqwest.exceptions import RequestError
from pyreqwest.request import SyncRequestBuilder

from duetime.client import admin_operations, alert_operations, observability_operations, operations
from duetime.client.batch import Batch, Definition
from duetime.client.calls import PAGE_ROWS, Answer, Call, Followed, Listed, shown_as_method
from duetime.client.errors import DuetimeError, ServerAway
from duetime.client.models import BatchResult, Page
from duetime.client.per_process import PerProcess
from duetime.client.plain_http import PlainHttp, PlainHttpError
from duetime.client.retrying import Tries
from duetime.client.server import READ_AHEAD, Server, configured
from duetime.client.sse import Following

T = TypeVar("T")
P = ParamSpec("P")
PageT = TypeVar("PageT", bound=Page)


class Listing(Generic[PageT, T]):
    """Iterates over all rows of a list, page by page. `page` returns a single page."""

    def __init__(self, client: Client, listed: Listed[PageT, T]) -> None:
        self._client = client
        self._listed = listed

    def page(self, limit: int = 20, *, cursor: str | None = None, offset: int | None = None) -> PageT:
        """`cursor`: the `next_cursor` of the previous page."""
        return self._client.send(self._listed.page(limit, cursor, offset))

    def __iter__(self) -> Iterator[T]:
        cursor = None
        while True:
            page = self.page(PAGE_ROWS, cursor=cursor)
            yield from self._listed.rows(page)
            cursor = page.next_cursor
            if cursor is None:
                return


class Opened(NamedTuple):
    """An open stream of the server, of either HTTP library."""

    status: int
    header: Callable[[str], str | None]
    read: Callable[[], bytes]
    chunks: Iterator[bytes]


def _sends(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(build(*args, **kwargs))

    return shown_as_method(method, build)


def _lists(build: Callable[P, Listed[PageT, T]]) -> Callable[Concatenate[Client, P], Listing[PageT, T]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Listing[PageT, T]:
        return Listing(self, build(*args, **kwargs))

    return shown_as_method(method, build, "Listing[{}]")


def _follows(build: Callable[P, Followed[T]]) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self.follow(build(*args, **kwargs))

    return shown_as_method(method, build, "Generator[{}, None, None]")


class Client:
    """A client of a Duetime. Many threads can share it; close it, or use it in a `with`. It still works in a process
    that is forked from this one.

    `url` and `token` (a JWT or an API key) default to DUETIME_URL and DUETIME_TOKEN. `timeout_seconds` limits a whole
    response, and the silence of a stream. `retries`: how often a call is retried if that is safe, with growing waits;
    `retrying.py` defines which calls are. `sleep` and `jitter` are for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        sleep: Callable[[float], object] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._server = Server(url, token, timeout_seconds)
        self._timeout = timedelta(seconds=timeout_seconds)
        self._retries = retries
        self._sleep = sleep
        self._jitter = jitter
        self._http = PerProcess(lambda: configured(SyncClientBuilder(), self._timeout).build(), timeout_seconds)

    @property
    def url(self) -> str:
        return self._server.url

    def close(self) -> None:
        self._server.is_closed = True
        self._http.get().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
        """Send a call, and retry it if that is safe. Returns its response."""
        tries = Tries(self._retries, self._jitter)
        while True:
            outcome = self._try(call)
            wait = tries.wait_after(call, outcome)
            if wait is None:
                break
            self._sleep(wait)
        if isinstance(outcome, ServerAway):
            raise outcome
        try:
            return call.read(outcome)
        except DuetimeError as error:
            raise tries.conclude(error) from None

    def _try(self, call: Call[Any]) -> Answer | ServerAway:
        http = self._http.get()
        try:
            if isinstance(http, PlainHttp):
                return http.send(call.method, self.url + call.path, self._server.headers(call), call.body)
            response = self._request(http, call).timeout(self._timeout).build().send()
            return Answer(response.status, response.bytes().to_bytes(), response.get_header)
        except RequestError as error:
            return self._server.away(call, error)
        except PlainHttpError as error:
            return self._server.lost(call, str(error), error.was_sent, error.is_timeout)

    def _request(self, http: SyncClient, call: Call[Any]) -> SyncRequestBuilder:
        request = http.request(call.method, self.url + call.path).headers(self._server.headers(call))
        return request if call.body is None else request.body_bytes(call.body)

    @contextmanager
    def _opened(self, call: Call[Any]) -> Iterator[Opened]:
        """Opens a stream."""
        http = self._http.get()
        if isinstance(http, PlainHttp):
            with http.open(call.method, self.url + call.path, self._server.headers(call), call.body) as plain:
                yield Opened(plain.status, plain.headers.get, plain.read, http.chunks(plain))
            return
        with self._request(http, call).streamed_read_buffer_limit(READ_AHEAD).build_streamed() as response:

            def chunks() -> Iterator[bytes]:
                while (chunk := response.body_reader.read_chunk()) is not None:
                    yield chunk.to_bytes()

            yield Opened(response.status, response.get_header, lambda: response.bytes().to_bytes(), chunks())

    def follow(self, followed: Followed[T]) -> Generator[T, None, None]:
        """Yield the events of a stream, and reconnect as needed. Closing the generator ends it."""
        following, tries = Following(followed), Tries(self._retries, self._jitter)
        while True:
            call = following.call()
            outcome: Answer | ServerAway
            try:
                with self._opened(call) as response:
                    if response.status == 200:
                        yield from following.open()
                        for chunk in response.chunks:
                            tries.start_over()
                            yield from following.take(chunk)
                            if following.is_over:
                                return
                        outcome = self._server.ended(call)
                    else:
                        outcome = Answer(response.status, response.read(), response.header)
            except RequestError as error:
                outcome = self._server.away(call, error)
            except PlainHttpError as error:
                outcome = self._server.lost(call, str(error), error.was_sent, error.is_timeout)
            wait = tries.wait_after(call, outcome)
            if wait is None:
                raise outcome if isinstance(outcome, ServerAway) else call.failure(outcome)
            self._sleep(wait)

    def create_jobs(self, jobs: Iterable[Definition]) -> BatchResult:
        """Create many jobs, in requests of some thousands. `jobs` is read as they are sent. Returns the result of each.

        A batch has no idempotency key, so it is not retried when its connection breaks: that could create jobs twice.
        BatchInterrupted then has the results so far, and the jobs with an unknown result. Jobs with a `key` can always
        be sent again: those that exist are refused as CONFLICT.
        """
        batch = Batch()
        for job in jobs:
            if call := batch.add(job):
                self._send_chunk(batch, call)
        if call := batch.rest():
            self._send_chunk(batch, call)
        return batch.result()

    def _send_chunk(self, batch: Batch, call: Call[BatchResult]) -> None:
        try:
            batch.answered(self.send(call))
        except DuetimeError as error:
            raise batch.interrupted(error) from error

    create_job = _sends(operations.create_job)
    list_jobs = _lists(operations.list_jobs)
    get_job = _sends(operations.get_job)
    put_job_by_key = _sends(operations.put_job_by_key)
    change_job = _sends(operations.change_job)
    cancel_job = _sends(operations.cancel_job)
    purge_job = _sends(operations.purge_job)
    pause_job = _sends(operations.pause_job)
    resume_job = _sends(operations.resume_job)
    run_job = _sends(operations.run_job)
    retry_job = _sends(operations.retry_job)
    job_status = _sends(operations.job_status)
    job_executions = _lists(operations.job_executions)
    job_next = _sends(operations.job_next)
    job_why = _sends(operations.job_why)

    list_executions = _lists(operations.list_executions)
    get_execution = _sends(operations.get_execution)
    logs = _sends(operations.logs)
    follow_logs = _follows(operations.follow_logs)
    cancel_execution = _sends(operations.cancel_execution)
    retry_execution = _sends(operations.retry_execution)
    dead_letters = _lists(operations.dead_letters)
    redrive = _sends(operations.redrive)

    preview_schedule = _sends(operations.preview_schedule)
    events = _follows(operations.events)
    create_api_key = _sends(admin_operations.create_api_key)
    list_api_keys = _sends(admin_operations.list_api_keys)
    revoke_api_key = _sends(admin_operations.revoke_api_key)
    audit = _lists(admin_operations.audit)
    list_workers = _sends(admin_operations.list_workers)
    list_connections = _sends(admin_operations.list_connections)
    put_connection = _sends(admin_operations.put_connection)
    remove_connection = _sends(admin_operations.remove_connection)
    list_alert_channels = _sends(alert_operations.list_alert_channels)
    put_alert_channel = _sends(alert_operations.put_alert_channel)
    remove_alert_channel = _sends(alert_operations.remove_alert_channel)
    test_alert_channel = _sends(alert_operations.test_alert_channel)
    list_alerts = _sends(alert_operations.list_alerts)
    alert_history = _sends(alert_operations.alert_history)
    list_alert_rules = _sends(alert_operations.list_alert_rules)
    get_alert_rule = _sends(alert_operations.get_alert_rule)
    put_alert_rule = _sends(alert_operations.put_alert_rule)
    remove_alert_rule = _sends(alert_operations.remove_alert_rule)
    test_alert_rule = _sends(alert_operations.test_alert_rule)
    list_silences = _sends(alert_operations.list_silences)
    add_silence = _sends(alert_operations.add_silence)
    remove_silence = _sends(alert_operations.remove_silence)
    list_subscriptions = _sends(admin_operations.list_subscriptions)
    add_subscription = _sends(admin_operations.add_subscription)
    remove_subscription = _sends(admin_operations.remove_subscription)
    get_signing_key = _sends(admin_operations.get_signing_key)
    rotate_signing_key = _sends(admin_operations.rotate_signing_key)
    list_circuits = _sends(admin_operations.list_circuits)
    close_circuit = _sends(admin_operations.close_circuit)
    cluster = _sends(observability_operations.cluster)
    observability_now = _sends(observability_operations.observability_now)
    health = _sends(observability_operations.health)
    ready = _sends(observability_operations.ready)
    stats = _sends(observability_operations.stats)
    observability = _sends(observability_operations.observability)
    histograms = _sends(observability_operations.histograms)
    job_histograms = _sends(observability_operations.job_histograms)
    request = _sends(operations.request)
