"""From a name to addresses that may be called.

Every address of a name is checked, and one bad one refuses the name: a target that mixes public and private
addresses is either an attack or a mistake. What comes out is kept for a few seconds, and so is a failure: a
dead name must not occupy a thread for each attempt. Callers who want the same name at the same time share one
lookup.

Lookups have threads of their own. The system's resolver blocks for many seconds on a dead name server, and
the event loop's default pool has six threads on a small machine. They are daemons: a lookup that hangs must not keep
the process from ending, as the threads of `concurrent.futures` would. How many names may wait for them is bounded.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple

from duetime.executors.guard import Address, BlockedTarget, parse_address

Lookup = Callable[[str], Awaitable[Sequence[str]]]


class DnsError(Exception):
    """The name has no address, or nobody could be asked. The message is a sentence."""


class SystemLookup:
    """getaddrinfo on daemon threads of our own, started as they are needed. For one event loop."""

    def __init__(self, threads: int = 32) -> None:
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
        """Threads that wait for a question end; one that hangs ends with its answer, or with the process."""
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
            except RuntimeError:  # the loop has ended meanwhile, and with it whoever asked
                return

    def _hand_over(self, question: _Question, found: Sequence[str] | Exception) -> None:
        self._unanswered -= 1
        if question.answer.done():
            return  # who asked has given up
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


class Resolver:
    """`check` raises `BlockedTarget` for an address that may not be called."""

    def __init__(
        self,
        check: Callable[[Address], None],
        lookup: Lookup,
        *,
        ttl_seconds: float = 15.0,
        error_ttl_seconds: float = 3.0,
        max_names: int = 4096,
        max_under_way: int = 256,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check = check
        self._lookup = lookup
        self._ttl_seconds = ttl_seconds
        self._error_ttl_seconds = error_ttl_seconds
        self._max_names = max_names
        self._max_under_way = max_under_way
        self._monotonic = monotonic
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[_Answer]] = {}

    def cached(self, host: str) -> tuple[str, ...] | None:
        """The addresses of a name that was resolved a moment ago, or None: ask `resolve`."""
        answer = self._answers.get(host)
        if answer is None or answer.error is not None or answer.until <= self._monotonic():
            return None
        return answer.addresses

    async def resolve(self, host: str) -> tuple[str, ...]:
        """All addresses, each checked, in the order to try them. Raises `DnsError` or `BlockedTarget`."""
        answer = self._answers.get(host)
        if answer is None or answer.until <= self._monotonic():
            task = self._under_way.get(host)
            if task is None:
                if len(self._under_way) >= self._max_under_way:
                    raise DnsError(f"The name {host} could not be resolved (too many lookups under way).")
                task = asyncio.create_task(self._ask(host))
                self._under_way[host] = task
            # Shielded: one caller who gives up must not take the answer from the others.
            answer = await asyncio.shield(task)
        if answer.error is not None:
            # A new one each time: an exception that is raised twice drags its first traceback along.
            raise type(answer.error)(*answer.error.args)
        return answer.addresses

    async def _ask(self, host: str) -> _Answer:
        addresses: tuple[str, ...] = ()
        error: DnsError | BlockedTarget | None = None
        try:
            addresses = self._checked(host, await self._lookup(host))
        except (DnsError, BlockedTarget) as problem:
            error = problem
        except (OSError, UnicodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else None
            error = DnsError(f"The name {host} could not be resolved ({reason or 'no usable answer'}).")
        finally:
            del self._under_way[host]
        ttl = self._ttl_seconds if error is None else self._error_ttl_seconds
        answer = _Answer(addresses, error, self._monotonic() + ttl)
        self._keep(host, answer)
        return answer

    def _checked(self, host: str, found: Sequence[str]) -> tuple[str, ...]:
        if not found:
            raise DnsError(f"The name {host} has no address.")
        for text in found:
            try:
                self._check(parse_address(text))
            except BlockedTarget as problem:
                raise BlockedTarget(f"{host} may not be called: {problem}") from None
            except ValueError:
                raise DnsError(f"The name {host} resolved to something that is no address.") from None
        return tuple(dict.fromkeys(found))

    def _keep(self, host: str, answer: _Answer) -> None:
        self._answers[host] = answer
        self._answers.move_to_end(host)
        while len(self._answers) > self._max_names:
            self._answers.popitem(last=False)

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
