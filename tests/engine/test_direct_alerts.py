"""What needs no store: the operator is told when the database is gone, and a URL is called while the node works."""

from __future__ import annotations

import asyncio

import pytest

from duetime.domain.direct_alerts import database_gone, node_leaving
from duetime.domain.execution import ErrorType, Outcome
from duetime.domain.payloads import Notice
from duetime.engine.direct_alerts import DirectAlerts
from duetime.engine.heartbeat import Heartbeat
from duetime.engine.store_watch import StoreWatch
from duetime.testing import HandClock

FAILED = Outcome(ErrorType.CONNECTION_ERROR, "No connection.")


class FakeChannels:
    """Channels that answer as the test says. `sent`: (channel, message id, title)."""

    def __init__(self, *outcomes: Outcome | Exception, count: int = 1) -> None:
        self.count = count
        self.outcomes = list(outcomes)
        self.sent: list[tuple[int, str, str]] = []

    async def send(self, place: int, message_id: str, notice: Notice) -> Outcome:
        self.sent.append((place, message_id, notice.title))
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome(http_status=200)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def alerts(channels: FakeChannels, *pauses: float) -> DirectAlerts:
    numbers = iter(range(1000))
    return DirectAlerts(channels, HandClock(), lambda size: (next(numbers) << 8).to_bytes(size, "big"), pauses)


async def test_every_channel_is_told_once():
    channels = FakeChannels(count=2)
    direct = alerts(channels)
    assert direct.tell(node_leaving("n1"))
    assert not direct.tell(node_leaving("n1"))
    await direct.settle()
    assert [(place, title) for place, _, title in channels.sent] == [
        (0, "Duetime: the node n1 is leaving"), (1, "Duetime: the node n1 is leaving"),
    ]  # fmt: skip
    assert len({message_id for _, message_id, _ in channels.sent}) == 2


async def test_a_failed_notice_is_tried_again_with_the_same_id():
    channels = FakeChannels(FAILED, RuntimeError("https://hooks.example/T0K3N"))
    direct = alerts(channels, 0.0, 0.0, 0.0)
    direct.tell(node_leaving("n1"))
    await direct.settle()
    assert len(channels.sent) == 3
    assert len({message_id for _, message_id, _ in channels.sent}) == 1


async def test_a_notice_that_never_arrives_is_given_up_and_logged_without_the_url(capsys: pytest.CaptureFixture[str]):
    channels = FakeChannels(*[RuntimeError("https://hooks.example/T0K3N")] * 3)
    direct = alerts(channels, 0.0, 0.0)
    direct.tell(node_leaving("n1"))
    await direct.settle()
    assert len(channels.sent) == 3
    printed = "".join(capsys.readouterr())
    assert "did not reach the operator" in printed
    assert "T0K3N" not in printed


async def test_without_channels_nothing_is_told():
    direct = alerts(FakeChannels(count=0))
    assert not direct.is_on
    assert not direct.tell(node_leaving("n1"))


async def test_a_stop_gives_up_what_is_under_way():
    channels = FakeChannels(FAILED)
    direct = alerts(channels, 3600.0)
    direct.tell(database_gone("n1", 30, "x"))
    await asyncio.sleep(0)
    await direct.stop()
    await direct.settle()


class FakeStore:
    def __init__(self) -> None:
        self.trouble: str | Exception | None = None

    async def check(self) -> str | None:
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return self.trouble


@pytest.mark.parametrize("trouble", ["it can't be written", ConnectionError("no route")])
async def test_a_database_that_is_gone_for_a_while_is_told_once_and_resolved_once(trouble: str | Exception):
    store, clock, told = FakeStore(), HandClock(), list[Notice]()
    watch = StoreWatch(store.check, clock, "n1", 30, told.append)
    assert watch.trouble == "not checked yet"
    await watch.run_once()
    assert (watch.trouble, told) == (None, [])
    store.trouble = trouble
    for _ in range(30):
        await watch.run_once()
        clock.advance(1)
    assert not told, "not before 30 s"
    for _ in range(60):
        await watch.run_once()
        clock.advance(1)
    store.trouble = None
    for _ in range(3):
        await watch.run_once()
    assert [(one.status, one.dedup_key) for one in told] == [
        ("firing", "database_gone:n1"), ("resolved", "database_gone:n1"),
    ]  # fmt: skip
    assert "It was away for 90 s." in told[1].body


async def test_a_short_trouble_of_the_database_is_not_told():
    store, clock, told = FakeStore(), HandClock(), list[Notice]()
    watch = StoreWatch(store.check, clock, "n1", 30, told.append)
    for _ in range(5):
        store.trouble = "busy"
        for _ in range(20):
            await watch.run_once()
            clock.advance(1)
        store.trouble = None
        await watch.run_once()
    assert not told


async def test_a_store_that_does_not_answer_is_trouble(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetime.engine.store_watch.CHECK_SECONDS", 0.0)

    async def hang() -> str | None:
        await asyncio.Event().wait()
        return None

    watch = StoreWatch(hang, HandClock(), "n1", 30, lambda notice: None)
    await watch.run_once()
    assert watch.trouble == "no answer within 0 s"


class Url:
    def __init__(self) -> None:
        self.calls = 0
        self.outcome = Outcome(http_status=200)

    async def call(self) -> Outcome:
        self.calls += 1
        return self.outcome


async def test_the_heartbeat_calls_its_url_at_its_interval():
    url, clock = Url(), HandClock()
    heartbeat = Heartbeat(url.call, lambda: None, clock, 60)
    assert await heartbeat.run_once() == clock.now() + 60_000
    assert url.calls == 1


async def test_a_node_that_does_not_work_has_no_heartbeat_until_it_works_again():
    url, clock, trouble = Url(), HandClock(), ["timer: it failed"]
    heartbeat = Heartbeat(url.call, lambda: trouble[0] if trouble else None, clock, 60)
    for _ in range(5):
        clock.set(await heartbeat.run_once())
    assert url.calls == 0
    trouble.clear()
    await heartbeat.run_once()
    assert url.calls == 1


async def test_a_heartbeat_that_fails_goes_on():
    url, clock = Url(), HandClock()
    url.outcome = FAILED
    heartbeat = Heartbeat(url.call, lambda: None, clock, 60)
    for _ in range(3):
        clock.set(await heartbeat.run_once())
    assert url.calls == 3
