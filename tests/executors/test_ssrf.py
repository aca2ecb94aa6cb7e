"""No request reaches a blocked address: the guard, the resolver and the sockets together, with a canary."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_network

import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt, Outcome
from executors.hostile import Hostile

MakeAttempt = Callable[..., Attempt]
# Tests stay on loopback, so 127.0.0.2 and .3 stand for public addresses, which are allowed.
PUBLIC = (ip_network("127.0.0.2/32"), ip_network("127.0.0.3/32"))


class Names:
    """A name server that gives its answers in turn, and then always the last one."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is free on all three addresses. Another process may use it on only one of them."""
    while True:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for bound in sockets:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sockets[0].bind(("127.0.0.1", 0))
            port = sockets[0].getsockname()[1]
            try:
                sockets[1].bind(("127.0.0.2", port))
                sockets[2].bind(("127.0.0.3", port))
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:
                    raise
                continue
            yield port  # these sockets reserve the port, and do not listen: only servers that share it can
            return


@pytest.fixture
async def public(port: int) -> AsyncIterator[Hostile]:
    async with Hostile("127.0.0.2", port) as server:
        yield server


@pytest.fixture
async def canary(public: Hostile) -> AsyncIterator[Hostile]:
    """Listens on the forbidden address, at the port of the public one. Nothing may connect."""
    async with Hostile("127.0.0.1", public.port) as server:
        yield server
        assert server.connections == 0


async def execute_until_asked_anew(executor: HttpExecutor, names: Names, attempt: Attempt) -> list[Outcome]:
    """Executes until the name is resolved again: an answer is cached for four times the duration of its lookup."""
    asked, outcomes = len(names.asked), list[Outcome]()
    while len(names.asked) == asked:
        outcomes.append(await executor.execute(attempt))
    return outcomes


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "①②⑦.0.0.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
    ],
)
async def test_no_way_to_write_the_address_reaches_the_canary(canary: Hostile, attempt: MakeAttempt, host: str):
    executor = HttpExecutor(allow=PUBLIC, lookup=Names(["127.0.0.1"]))
    outcome = await executor.execute(attempt(f"http://{host}:{canary.port}/ok"))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    await executor.stop()


async def test_with_the_system_resolver_localhost_does_not_reach_the_canary(canary: Hostile, attempt: MakeAttempt):
    executor = HttpExecutor(allow=PUBLIC)
    outcome = await executor.execute(attempt(f"http://localhost:{canary.port}/ok"))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    await executor.stop()


async def test_a_name_that_turns_to_loopback_is_refused_and_its_kept_connection_is_not_used(
    public: Hostile, canary: Hostile, attempt: MakeAttempt
):
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    executor = HttpExecutor(allow=PUBLIC, lookup=names, dns_ttl_seconds=0)
    url = f"http://rebind.example:{public.port}/ok"
    assert (await executor.execute(attempt(url))).http_status == 200
    *earlier, outcome = await execute_until_asked_anew(executor, names, attempt(url))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert outcome.error_message == (
        "rebind.example may not be called: 127.0.0.1 is not a public address (loopback). Nothing was sent."
    )
    assert len(public.received) == 1 + len(earlier)
    await executor.stop()


async def test_an_attempt_resolves_the_name_once_and_connects_to_the_checked_address(
    public: Hostile, canary: Hostile, attempt: MakeAttempt
):
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    executor = HttpExecutor(allow=PUBLIC, lookup=names)
    outcome = await executor.execute(attempt(f"http://rebind.example:{public.port}/ok"))
    assert outcome.http_status == 200
    assert names.asked == ["rebind.example"]
    assert public.received[0].headers["host"] == f"rebind.example:{public.port}"
    await executor.stop()


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "::1"],
        ["127.0.0.2", "::ffff:127.0.0.1"],
        ["127.0.0.2", "fe80::1%lo"],
    ],
)
async def test_one_blocked_address_blocks_the_whole_name(
    public: Hostile, canary: Hostile, attempt: MakeAttempt, answer: list[str]
):
    executor = HttpExecutor(allow=PUBLIC, lookup=Names(answer))
    outcome = await executor.execute(attempt(f"http://mixed.example:{public.port}/ok"))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert public.connections == 0
    await executor.stop()


async def test_a_redirect_to_the_canary_is_not_followed(public: Hostile, canary: Hostile, attempt: MakeAttempt):
    public.answer = b"HTTP/1.1 307 Go\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % canary.url().encode()
    executor = HttpExecutor(allow=PUBLIC)
    assert (await executor.execute(attempt(public.url()))).http_status == 307
    await executor.stop()


async def test_a_kept_connection_is_not_used_after_the_name_changed(public: Hostile, attempt: MakeAttempt):
    async with Hostile("127.0.0.3", public.port) as moved:
        names = Names(["127.0.0.2"], ["127.0.0.3"])
        executor = HttpExecutor(allow=PUBLIC, lookup=names, dns_ttl_seconds=0)
        url = f"http://moving.example:{public.port}/ok"
        await executor.execute(attempt(url))
        outcomes = await execute_until_asked_anew(executor, names, attempt(url))
        assert (len(public.received), len(moved.received)) == (len(outcomes), 1)
        await executor.stop()


async def test_the_next_address_is_tried_when_one_refuses(public: Hostile, attempt: MakeAttempt):
    executor = HttpExecutor(allow=PUBLIC, lookup=Names(["127.0.0.3", "127.0.0.2"]))
    outcome = await executor.execute(attempt(f"http://two.example:{public.port}/ok"))
    assert outcome.http_status == 200
    await executor.stop()


async def test_a_lookup_that_hangs_counts_against_the_time_of_the_attempt(attempt: MakeAttempt):
    async def never(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    executor = HttpExecutor(lookup=never)
    outcome = await executor.execute(attempt("http://slow.example/", timeout_seconds=0.1))
    assert outcome.error_type is ErrorType.TIMEOUT
    await executor.stop()
