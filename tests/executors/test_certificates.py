"""Certificates of targets: read once a day through the guard, for those that jobs call."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duetime.executors.certificates import DAY_SECONDS, Certificate, Certificates, read_not_after
from duetime.executors.guard import BlockedTarget, Target, parse_target
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt
from executors.conftest import LOOPBACK
from executors.hostile import Hostile

DAY_MS = 86_400_000


def origin(host: str) -> Target:
    return parse_target(f"https://{host}/hook")


class World:
    """Certificates whose ends the test sets, and a clock that it turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: dict[str, int] = {}
        self.read: list[tuple[str, str, int]] = []
        self.blocked: set[str] = set()

    async def resolve(self, host: str, tenant: str) -> Sequence[str]:
        if host in self.blocked:
            raise BlockedTarget("it may not be called.")
        return ["192.0.2.7"]

    def handshake(self, address: str, host: str, port: int) -> int:
        self.read.append((address, host, port))
        if host not in self.ends:
            raise ConnectionRefusedError
        return self.ends[host]

    def make(self, most: int = 100) -> Certificates:
        return Certificates(self.resolve, most=most, monotonic=lambda: self.now, read=self.handshake)


@pytest.fixture
def world() -> World:
    return World()


async def test_the_certificate_of_a_target_is_read_once_a_day(world: World):
    certificates = world.make()
    world.ends["a.example"] = 5
    for _ in range(3):
        certificates.called("acme", origin("a.example"))
        await certificates.look()
    assert world.read == [("192.0.2.7", "a.example", 443)]
    assert certificates.certificates() == [Certificate("acme", "https://a.example:443", 5)]
    world.now, world.ends["a.example"] = DAY_SECONDS, 9
    certificates.called("acme", origin("a.example"))
    await certificates.look()
    assert certificates.certificates() == [Certificate("acme", "https://a.example:443", 9)]
    await certificates.stop()


async def test_a_target_that_no_job_has_called_for_a_day_is_forgotten(world: World):
    certificates = world.make()
    world.ends["a.example"] = 5
    certificates.called("acme", origin("a.example"))
    await certificates.look()
    world.now = DAY_SECONDS + 1
    await certificates.look()
    assert certificates.certificates() == []
    assert len(world.read) == 1
    await certificates.stop()


async def test_a_handshake_that_fails_is_repeated_after_an_hour_and_the_last_end_stays(world: World):
    certificates = world.make()
    certificates.called("acme", origin("a.example"))
    await certificates.look()
    assert certificates.certificates() == []
    world.now, world.ends["a.example"] = 1800.0, 5
    await certificates.look()
    assert len(world.read) == 1
    world.now = 3600.0
    await certificates.look()
    assert [it.not_after for it in certificates.certificates()] == [5]
    await certificates.stop()


async def test_a_forbidden_target_gets_no_handshake(world: World):
    certificates = world.make()
    world.blocked.add("inside.example")
    certificates.called("acme", origin("inside.example"))
    await certificates.look()
    assert world.read == []
    await certificates.stop()


async def test_tenants_share_the_room_and_those_that_end_first_come_first(world: World):
    certificates = world.make(most=4)
    for number in range(10):
        world.ends[f"a{number}.example"] = 100 - number
        certificates.called("acme", origin(f"a{number}.example"))
    world.ends["b.example"] = 50
    certificates.called("globex", origin("b.example"))
    await certificates.look()
    found = certificates.certificates()
    assert [it.tenant for it in found].count("globex") == 1
    assert len(found) == 4
    assert found == sorted(found, key=lambda it: it.not_after)
    assert len(certificates.certificates(most=2)) == 2
    await certificates.stop()


@pytest.fixture
async def tls_target(certificate: tuple[Path, Path]) -> AsyncIterator[Hostile]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with Hostile(tls=context) as server:
        yield server


async def test_the_end_is_read_from_a_real_handshake_without_trust(tls_target: Hostile):
    not_after = await asyncio.to_thread(read_not_after, "127.0.0.1", "hook.example", tls_target.port)
    left = datetime.fromtimestamp(not_after / 1000, UTC) - datetime.now(UTC)
    assert timedelta(days=1) < left <= timedelta(days=2, minutes=1), "the certificate of the tests is valid for 2 days"


async def test_the_executor_notes_the_https_targets_that_jobs_call(
    tls_target: Hostile, target: Hostile, attempt: Callable[..., Attempt]
):
    called: list[tuple[str, str]] = []
    executor = HttpExecutor(allow=LOOPBACK, called=lambda tenant, target: called.append((tenant, target.host)))
    await executor.execute(attempt(tls_target.url(), tenant="acme"))
    await executor.execute(attempt(target.url()))
    await executor.stop()
    assert called == [("acme", "127.0.0.1")]
