"""Slow names of one tenant: its hanging lookups neither delay lookups of others nor evict their cached names."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from duetime.domain.states import ErrorType
from duetime.executors.guard import Guard
from duetime.executors.http import HttpExecutor
from duetime.executors.resolver import DnsError, Resolver, SystemLookup
from duetime.ports.executor import Attempt
from executors.conftest import LOOPBACK
from executors.hostile import Hostile


class NameServer:
    """Replaces `getaddrinfo`: names that begin with `slow` hang until `answer` is set."""

    def __init__(self) -> None:
        self.begun = queue.SimpleQueue[str]()
        self.answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.begun.put(host)
            self.answer.wait(60)
        return [(None, None, None, None, ("127.0.0.1", 0))]

    async def reached(self, count: int) -> list[str]:
        return [await asyncio.to_thread(self.begun.get, timeout=30) for _ in range(count)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answer.set()


@pytest.fixture
async def system_executor() -> AsyncIterator[HttpExecutor]:
    """An executor that may call loopback and uses the system's resolver."""
    made = HttpExecutor(allow=LOOPBACK)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def lookup() -> AsyncIterator[SystemLookup]:
    made = SystemLookup()
    yield made
    made.close()


async def test_96_slow_names_of_one_tenant_do_not_delay_another(
    names: NameServer, system_executor: HttpExecutor, target: Hostile, attempt: Callable[..., Attempt]
):
    def begin(tenant: str, host: str) -> asyncio.Task:
        return asyncio.create_task(system_executor.execute(attempt(target.url("/ok", host), 30.0, tenant=tenant)))

    slow = [begin("hostile", f"slow-{number}.example") for number in range(96)]
    await names.reached(32)
    quick = [begin("other", f"quick-{number}.example") for number in range(20)]
    assert {outcome.http_status for outcome in await asyncio.gather(*quick)} == {200}
    names.answer.set()
    await asyncio.gather(*slow)


async def test_a_tenant_alone_uses_all_places_and_a_second_one_gets_its_share(names: NameServer, lookup: SystemLookup):
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, places=8)
    first = [asyncio.create_task(resolver.resolve(f"slow-{n}.example", "first")) for n in range(20)]
    assert len(await names.reached(8)) == 8
    second = [asyncio.create_task(resolver.resolve(f"slow2-{n}.example", "second")) for n in range(20)]
    third = [asyncio.create_task(resolver.resolve(f"slow3-{n}.example", "third")) for n in range(20)]
    begun = await names.reached(4 + 2)
    assert sorted(host.partition("-")[0] for host in begun) == ["slow2"] * 4 + ["slow3"] * 2
    assert names.begun.empty()
    names.answer.set()
    await asyncio.gather(*first, *second, *third)
    await resolver.close()


async def test_a_name_does_not_wait_in_the_queue_of_another_tenant(names: NameServer, lookup: SystemLookup):
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, places=2)
    hosts = [*(f"slow-{n}.example" for n in range(9)), "shared.example"]
    hostile = [asyncio.create_task(resolver.resolve(host, "hostile")) for host in hosts]
    await names.reached(2)
    assert await resolver.resolve("shared.example", "other") == ("127.0.0.1",)
    assert await hostile[-1] == ("127.0.0.1",)
    assert names.asked.count("shared.example") == 1
    names.answer.set()
    await asyncio.gather(*hostile)
    await resolver.close()


async def test_a_full_queue_gives_way_to_a_tenant_with_fewer_lookups(names: NameServer, lookup: SystemLookup):
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, places=1, max_waiting=3, max_threads=1)
    hostile = [asyncio.create_task(resolver.resolve(f"slow-{n}.example", "hostile")) for n in range(4)]
    await names.reached(1)
    with pytest.raises(DnsError, match="too many lookups"):
        await resolver.resolve("slow-4.example", "hostile")
    other = asyncio.create_task(resolver.resolve("quick.example", "other"))
    with pytest.raises(DnsError, match="too many lookups"):
        await hostile[3]
    names.answer.set()
    assert await other == ("127.0.0.1",)
    await asyncio.gather(*hostile[:3])
    await resolver.close()


async def test_a_lookup_that_takes_too_long_fails_its_callers_and_is_not_begun_again_while_it_hangs(
    names: NameServer, lookup: SystemLookup
):
    now = 100.0
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, lookup_seconds=0.05, monotonic=lambda: now)
    for _ in range(3):
        with pytest.raises(DnsError, match="no name server answered within"):
            await resolver.resolve("slow.example", "hostile")
        now += 3600
    await names.reached(1)
    assert names.asked == ["slow.example"]
    names.answer.set()
    async with asyncio.timeout(30):
        while resolver.cached("slow.example") is None:  # noqa: ASYNC110 (the thread tells nobody else)
            await asyncio.sleep(0.01)
    assert await resolver.resolve("slow.example", "hostile") == ("127.0.0.1",), "the late answer counts"
    await resolver.close()


async def test_the_result_of_a_slow_lookup_is_cached_for_longer_up_to_a_limit(names: NameServer, lookup: SystemLookup):
    now = 100.0

    def took(seconds: float) -> Callable[..., object]:
        def fail(host: str, *_: object, **__: object) -> object:
            nonlocal now
            names.asked.append(host)
            now += seconds
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

        return fail

    resolver = Resolver(Guard().check, lookup, error_ttl_seconds=3, monotonic=lambda: now)
    for seconds, kept in ((0.1, 3), (5, 20), (30, 60)):
        names.asked.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", took(seconds))
            for later in (0, kept - 0.001):
                now += later
                with pytest.raises(DnsError, match="Temporary failure"):
                    await resolver.resolve("dead.example", "hostile")
        assert names.asked == ["dead.example"]
        now += 0.002
    await resolver.close()


async def test_a_place_of_a_caller_that_gave_up_is_given_to_the_next(names: NameServer, lookup: SystemLookup):
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, places=1)
    begun = asyncio.create_task(resolver.resolve("slow-0.example", "hostile"))
    await names.reached(1)
    gave_up = asyncio.create_task(resolver.resolve("slow-1.example", "hostile"))
    await asyncio.sleep(0)
    gave_up.cancel()
    await asyncio.gather(gave_up, return_exceptions=True)
    names.answer.set()
    await begun
    await resolver.resolve("quick.example", "hostile")
    assert "slow-1.example" not in names.asked
    await resolver.close()


async def test_many_names_of_one_tenant_do_not_evict_those_of_another(names: NameServer, lookup: SystemLookup):
    resolver = Resolver(Guard(allow=LOOPBACK).check, lookup, max_names=10)
    await resolver.resolve("mine.example", "other")
    for number in range(50):
        await resolver.resolve(f"flood-{number}.example", "hostile")
    assert resolver.cached("mine.example") == ("127.0.0.1",)
    assert sum(resolver.cached(f"flood-{number}.example") is not None for number in range(50)) == 9
    await resolver.close()


async def test_an_attempt_ends_at_its_timeout_even_if_its_lookup_hangs(
    names: NameServer, system_executor: HttpExecutor, attempt: Callable[..., Attempt]
):
    outcome = await system_executor.execute(attempt("http://slow.example/", 0.1))
    assert outcome.error_type is ErrorType.TIMEOUT
