from __future__ import annotations

import asyncio
import queue
import socket
import subprocess
import sys
import threading

import pytest

from duetime.executors.guard import BlockedTarget, Guard
from duetime.executors.resolver import DnsError, Resolver, SystemLookup
from patience import PATIENCE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Lookup:
    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        self.reached.set()
        await self.gate.wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses


async def test_a_result_is_cached_for_its_ttl_and_then_looked_up_again():
    lookup, clock = Lookup("8.8.8.8", "8.8.8.8", "1.1.1.1"), Clock()
    resolver = Resolver(Guard().check, lookup, ttl_seconds=15, monotonic=clock)
    assert resolver.cached("a.example") is None
    assert await resolver.resolve("a.example") == ("8.8.8.8", "1.1.1.1")
    assert resolver.cached("a.example") == ("8.8.8.8", "1.1.1.1")
    clock.now += 15
    assert resolver.cached("a.example") is None
    await resolver.resolve("a.example")
    assert lookup.asked == ["a.example"] * 2


async def test_callers_of_the_same_name_share_one_lookup():
    lookup = Lookup("8.8.8.8")
    lookup.gate.clear()
    resolver = Resolver(Guard().check, lookup)
    callers = [asyncio.create_task(resolver.resolve("a.example")) for _ in range(50)]
    await lookup.reached.wait()
    callers[0].cancel()
    lookup.gate.set()
    answers = await asyncio.gather(*callers[1:])
    assert answers == [("8.8.8.8",)] * 49
    assert lookup.asked == ["a.example"]


async def test_a_failure_is_cached_for_a_shorter_time():
    lookup, clock = Lookup(), Clock()
    resolver = Resolver(Guard().check, lookup, error_ttl_seconds=3, monotonic=clock)
    for _ in range(2):
        with pytest.raises(DnsError, match=r"^The name a\.example could not be resolved \(Name or service"):
            await resolver.resolve("a.example")
    assert len(lookup.asked) == 1
    clock.now += 3
    lookup.addresses = ["8.8.8.8"]
    assert await resolver.resolve("a.example") == ("8.8.8.8",)


async def test_a_blocked_address_is_not_returned_from_the_cache():
    resolver = Resolver(Guard().check, Lookup("8.8.8.8", "10.0.0.1"))
    for _ in range(2):
        with pytest.raises(BlockedTarget, match=r"a\.example may not be called: 10\.0\.0\.1"):
            await resolver.resolve("a.example")
        assert resolver.cached("a.example") is None


async def test_an_invalid_result_of_a_name_server_is_a_dns_error():
    with pytest.raises(DnsError):
        await Resolver(Guard().check, Lookup("not an address")).resolve("a.example")


async def test_the_cache_is_bounded():
    lookup = Lookup("8.8.8.8")
    resolver = Resolver(Guard().check, lookup, max_names=2)
    for host in ("a.example", "b.example", "c.example"):
        await resolver.resolve(host)
    assert resolver.cached("a.example") is None
    assert resolver.cached("c.example") == ("8.8.8.8",)


async def test_too_many_lookups_are_refused_at_once_and_the_refusal_is_not_cached():
    lookup = Lookup("8.8.8.8")
    lookup.gate.clear()
    resolver = Resolver(Guard().check, lookup, places=2, max_waiting=1, max_threads=2)
    hosts = ("a.example", "b.example", "a.example", "c.example")
    callers = [asyncio.create_task(resolver.resolve(host)) for host in hosts]
    await lookup.reached.wait()
    with pytest.raises(DnsError, match="too many lookups under way"):
        await resolver.resolve("d.example")
    lookup.gate.set()
    await asyncio.gather(*callers)
    assert await resolver.resolve("d.example") == ("8.8.8.8",)


class TestSystemLookup:
    async def test_returns_and_raises_like_the_system(self):
        lookup = SystemLookup()
        assert "127.0.0.1" in await lookup("127.0.0.1")
        with pytest.raises((OSError, UnicodeError)):
            await lookup("no such name")
        lookup.close()

    async def test_runs_as_many_lookups_as_it_has_threads(self, monkeypatch: pytest.MonkeyPatch):
        begun, gate = queue.SimpleQueue[str](), threading.Event()

        def slow(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
            begun.put(host)
            gate.wait(PATIENCE_SECONDS)
            return [(None, None, None, None, (f"192.0.2.{host}", 0))]

        monkeypatch.setattr(socket, "getaddrinfo", slow)
        lookup = SystemLookup(threads=2)
        asked = [asyncio.create_task(lookup(str(number))) for number in range(5)]
        first = [await asyncio.to_thread(begun.get, timeout=PATIENCE_SECONDS) for _ in range(2)]
        assert (first, begun.empty()) == (["0", "1"], True)
        asked[2].cancel()
        gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [answers[number] for number in (0, 1, 3, 4)] == [[f"192.0.2.{number}"] for number in (0, 1, 3, 4)]
        lookup.close()

    def test_a_hanging_lookup_does_not_keep_the_process_from_ending(self):
        script = (
            "import asyncio, socket, threading\n"
            "from duetime.executors.resolver import SystemLookup\n"
            "socket.getaddrinfo = lambda *_, **__: threading.Event().wait(600)\n"
            "async def main():\n"
            "    lookup = SystemLookup()\n"
            "    try:\n"
            "        await asyncio.wait_for(lookup('a.example'), 0.05)\n"
            "    except TimeoutError:\n"
            "        lookup.close()\n"
            "asyncio.run(main())\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_SECONDS)
