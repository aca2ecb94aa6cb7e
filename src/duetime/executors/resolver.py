"""Resolves names to addresses that jobs may call, with a short-lived cache.

Every address of a name is checked, and one blocked address blocks the name: a target that mixes public and private
addresses is either an attack or a mistake. Results are cached for a few seconds. Failures are cached too, so that a
dead name does not occupy a thread for each attempt. The result of a slow lookup is cached for longer, so that a slow
name occupies a thread for at most a fifth of the time. Concurrent callers of the same name share one lookup.

Lookups run on threads of their own. The system's resolver blocks for many seconds on a dead name server, and the event
loop's default pool has six threads on a small machine. The threads are daemons: unlike the threads of
`concurrent.futures`, a hanging lookup does not keep the process from exiting. A hanging thread can't be stopped, so the
threads are shared by tenant: one tenant alone may use all places, and extra threads give other tenants their share
while those hang. A caller waits for a limited time. After that the lookup continues, counts against its tenant, and its
late result is cached.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from queue import SimpleQueue
from typing import NamedTuple

from duetime.domain.shares import FairCache, FairQueue, Holdings
from duetime.executors.guard import Address, BlockedTarget

Lookup = Callable[[str], Awaitable[Sequence[str]]]

PLACES = 32
MOST_THREADS = 256  # hanging lookups, and the lookups of other tenants besides them
LOOKUP_SECONDS = 10.0
_KEPT_TIMES = 4  # a result is cached at least this many times as long as its lookup took
_LONGEST_TTL_SECONDS = 60.0


class DnsError(Exception):
    """The name has no address, or could not be resolved. The message is a sentence."""


class SystemLookup:
    """Runs getaddrinfo on its own daemon threads, which are started on demand. For one event loop."""

    def __init__(self, threads: int = MOST_THREADS) -> None:
        self._most_threads = threads
        self._threads = 0
        self._unanswered = 0
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()

    async def __call__(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        question = _Question(host, loop, loop.create_future())
        self._unanswered += 1
        self._questions.put(question)
        if self._threads < min(self._unanswered, self._most_threads):
            self._threads += 1
            threading.Thread(target=self._answer_all, name=f"duetime-dns-{self._threads}", daemon=True).start()
        return await question.answer

    def close(self) -> None:
        """Ends the idle threads. A hanging thread ends after its lookup, or with the process."""
        for _ in range(self._threads):
            self._questions.put(None)

    def _answer_all(self) -> None:
        while (question := self._questions.get()) is not None:
            found: Sequence[str] | Exception
            try:
                answers = socket.getaddrinfo(question.host, None, type=socket.SOCK_STREAM)
                found = [str(sockaddr[0]) for *_, sockaddr in answers]
            except Exception as problem:  # noqa: BLE001 (raised where it was asked)
                found = problem
            try:
                question.loop.call_soon_threadsafe(self._hand_over, question, found)
            except RuntimeError:  # the event loop was closed meanwhile, so no caller waits
                return

    def _hand_over(self, question: _Question, found: Sequence[str] | Exception) -> None:
        self._unanswered -= 1
        if question.answer.done():
            return  # the caller has given up
        if isinstance(found, Exception):
            question.answer.set_exception(found)
        else:
            question.answer.set_result(found)


class _Question(NamedTuple):
    host: str
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Answer:
    addresses: tuple[str, ...]
    error: DnsError | BlockedTarget | None
    until: float


class _Wait:
    """All callers of one tenant that wait for one name."""

    __slots__ = ("answer", "callers")

    def __init__(self) -> None:
        self.answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self.callers = 0


class _Lookup:
    """The lookup of one name. It is queued for each tenant that asks for it, then runs on behalf of one of them."""

    __slots__ = ("begun", "host", "too_slow", "waits")

    def __init__(self, host: str) -> None:
        self.host = host
        self.waits: dict[str, _Wait] = {}  # by tenant
        self.begun = False
        self.too_slow: _Answer | None = None  # the error for all callers once the lookup has taken too long

    def answer(self, answer: _Answer) -> None:
        for wait in self.waits.values():
            if not wait.answer.done():
                wait.answer.set_result(answer)
        self.waits.clear()


class Resolver:
    """`check` raises `BlockedTarget` for an address that may not be called.

    `places`: concurrent lookups. `max_threads`: the limit that includes extra lookups for tenants that would otherwise
    wait behind hanging lookups of other tenants.
    """

    def __init__(
        self, check: Callable[[Address], None], lookup: Lookup, *,
        ttl_seconds: float = 15.0, error_ttl_seconds: float = 3.0, lookup_seconds: float = LOOKUP_SECONDS,
        max_names: int = 4096, max_waiting: int = 256, places: int = PLACES, max_threads: int = MOST_THREADS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._check = check
        self._lookup = lookup
        self._ttl_seconds = ttl_seconds
        self._error_ttl_seconds = error_ttl_seconds
        self._lookup_seconds = lookup_seconds
        self._monotonic = monotonic
        self._answers: dict[str, _Answer] = {}
        self._names = FairCache[str](max_names)
        self._lookups: dict[str, _Lookup] = {}
        self._queue = FairQueue[str](places, max_threads)
        self._waiting = Holdings(max_waiting)
        self._tasks: set[asyncio.Task[None]] = set()

    def cached(self, host: str) -> tuple[str, ...] | None:
        """Returns the cached addresses of a name; None if there are none, and the caller must call `resolve`."""
        answer = self._answers.get(host)
        if answer is None or answer.error is not None or answer.until <= self._monotonic():
            return None
        return answer.addresses

    async def resolve(self, host: str, tenant: str = "") -> tuple[str, ...]:
        """Returns all addresses, each checked, in the order to try them. Raises `DnsError` or `BlockedTarget`."""
        answer = self._answers.get(host)
        if answer is None or answer.until <= self._monotonic():
            lookup = self._lookups.get(host)
            answer = None if lookup is None else lookup.too_slow
            answer = answer or await self._wait(host, tenant)
        if answer.error is not None:
            # A new exception each time: one that is raised twice keeps its first traceback.
            raise type(answer.error)(*answer.error.args)
        return answer.addresses

    async def close(self) -> None:
        for lookup in self._lookups.values():
            for wait in lookup.waits.values():
                wait.answer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Waiting

    async def _wait(self, host: str, tenant: str) -> _Answer:
        lookup = self._lookups.get(host)
        wait = None if lookup is None else lookup.waits.get(tenant)
        if lookup is None or wait is None:
            lookup, wait = self._enter(host, tenant)
            self._begin()
        wait.callers += 1
        try:
            # Shielded: a caller that is cancelled must not cancel the lookup of the others.
            return await asyncio.shield(wait.answer)
        finally:
            wait.callers -= 1
            if not wait.callers and not wait.answer.done() and not lookup.begun:
                self._withdraw(lookup, tenant)

    def _enter(self, host: str, tenant: str) -> tuple[_Lookup, _Wait]:
        lookup = self._lookups.get(host)
        if lookup is None or not lookup.begun:
            self._make_room(host, tenant)
            lookup = self._lookups.setdefault(host, _Lookup(host))
            self._waiting.add(tenant)
            self._queue.wait(tenant, host)
        wait = lookup.waits[tenant] = _Wait()
        return lookup, wait

    def _make_room(self, host: str, tenant: str) -> None:
        """Makes room in the queue: evicts the newest lookup of the tenant with the most waiting lookups.

        Raises `DnsError` if evicting one for this tenant would be unfair.
        """
        admitted, evicted = self._waiting.ask(tenant)
        if not admitted:
            raise _crowded(host)
        if evicted is not None:
            lookup = self._lookups[self._queue.newest(evicted)]
            wait = lookup.waits[evicted]
            self._withdraw(lookup, evicted)
            wait.answer.set_result(_Answer((), _crowded(lookup.host), 0.0))

    def _withdraw(self, lookup: _Lookup, tenant: str) -> None:
        del lookup.waits[tenant]
        self._waiting.remove(tenant)
        self._queue.withdraw(tenant, lookup.host)
        if not lookup.waits:
            del self._lookups[lookup.host]

    # Looking up

    def _begin(self) -> None:
        for tenant, host in self._queue.begin():
            lookup = self._lookups[host]
            lookup.begun = True
            for waiting in lookup.waits:
                self._waiting.remove(waiting)
                self._queue.withdraw(waiting, host)
            task = asyncio.create_task(self._look_up(lookup, tenant))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _look_up(self, lookup: _Lookup, tenant: str) -> None:
        host, begun_at = lookup.host, self._monotonic()
        timer = asyncio.get_running_loop().call_later(self._lookup_seconds, self._be_too_slow, lookup)
        try:
            addresses, error = await self._ask(host)
        finally:
            timer.cancel()
            del self._lookups[host]
            self._queue.end(tenant)
        now = self._monotonic()
        ttl = self._ttl_seconds if error is None else self._error_ttl_seconds
        ttl = max(ttl, min(_KEPT_TIMES * (now - begun_at), _LONGEST_TTL_SECONDS))
        answer = _Answer(addresses, error, now + ttl)
        self._keep(tenant, host, answer)
        lookup.answer(answer)
        self._begin()

    def _be_too_slow(self, lookup: _Lookup) -> None:
        sentence = f"no name server answered within {self._lookup_seconds:g} s"
        error = DnsError(f"The name {lookup.host} could not be resolved ({sentence}).")
        lookup.too_slow = _Answer((), error, 0.0)
        lookup.answer(lookup.too_slow)

    async def _ask(self, host: str) -> tuple[tuple[str, ...], DnsError | BlockedTarget | None]:
        try:
            return self._checked(host, await self._lookup(host)), None
        except (DnsError, BlockedTarget) as problem:
            return (), problem
        except (OSError, UnicodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else None
            return (), DnsError(f"The name {host} could not be resolved ({reason or 'no usable answer'}).")

    def _checked(self, host: str, found: Sequence[str]) -> tuple[str, ...]:
        if not found:
            raise DnsError(f"The name {host} has no address.")
        for text in found:
            try:
                self._check(ip_address(text))
            except BlockedTarget as problem:
                raise BlockedTarget(f"{host} may not be called: {problem}") from None
            except ValueError:
                raise DnsError(f"The name {host} resolved to something that is no address.") from None
        return tuple(dict.fromkeys(found))

    def _keep(self, tenant: str, host: str, answer: _Answer) -> None:
        self._answers[host] = answer
        dropped = self._names.add(tenant, host)
        if dropped is not None:
            del self._answers[dropped]


def _crowded(host: str) -> DnsError:
    return DnsError(f"The name {host} could not be resolved (too many lookups under way).")
