"""The hub: its followers get the events of their tenant, learn of gaps, and end at once when the node stops."""

from __future__ import annotations

import pytest

from duetime.events import LONGEST_QUEUE, PAGE, Event, EventHub, Following

T = "default"


class Woken:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def numbers(events: list[Event | None]) -> list[object]:
    return [None if event is None else event.data["number"] for event in events]


def publish(hub: EventHub, tenant: str, count: int) -> None:
    for number in range(count):
        hub.publish("job.created", 0, tenant, {"number": number})


def test_a_follower_is_woken_and_takes_the_new_events() -> None:
    hub, woken = EventHub(), Woken()
    publish(hub, T, 3)
    following = hub.follow(T, None, woken)
    assert (woken.times, following.take()) == (0, [])
    publish(hub, T, 2)
    assert woken.times > 0
    assert numbers(following.take()) == [0, 1]
    assert following.take() == []


def test_a_close_ends_all_followers_at_once_despite_waiting_events() -> None:
    hub, woken = EventHub(), Woken()
    followers = [hub.follow(T, None, woken) for _ in range(2)]
    publish(hub, T, 500)
    before = woken.times
    hub.close()
    assert woken.times == before + 2
    assert [(one.is_over, one.take()) for one in followers] == [(True, [])] * 2
    for one in followers:
        one.close()
    assert hub.followers == 0


def test_a_follower_of_a_closed_hub_has_ended() -> None:
    hub = EventHub()
    hub.publish("job.created", 0, T, {})
    hub.close()
    hub.publish("job.created", 0, T, {})  # while the node stops
    assert hub.follow(T, 0, Woken()).is_over


def test_a_follower_takes_a_page_of_events_and_is_woken_for_the_rest() -> None:
    hub, woken = EventHub(), Woken()
    publish(hub, T, PAGE + 1)
    following = hub.follow(T, 0, woken)
    before = woken.times
    assert numbers(following.take()) == list(range(PAGE))
    assert woken.times == before + 1
    assert numbers(following.take()) == [PAGE]
    assert woken.times == before + 1


def all_of(following: Following) -> list[Event | None]:
    found: list[Event | None] = []
    while page := following.take():
        found += page
    return found


def test_a_follower_that_is_far_behind_gets_a_gap_and_then_the_later_events() -> None:
    hub = EventHub()
    following = hub.follow(T, None, Woken())
    publish(hub, T, LONGEST_QUEUE + 100)
    assert numbers(all_of(following)) == [*range(LONGEST_QUEUE), None]
    publish(hub, T, 1)
    assert numbers(all_of(following)) == [0]


def test_kept_events_do_not_take_the_space_of_new_ones() -> None:
    hub = EventHub()
    publish(hub, T, 3 * LONGEST_QUEUE)
    following = hub.follow(T, 0, Woken())
    publish(hub, T, LONGEST_QUEUE)
    assert numbers(all_of(following)) == [*range(3 * LONGEST_QUEUE), *range(LONGEST_QUEUE)]


def test_a_flood_of_one_tenant_evicts_no_event_that_another_can_resume_from() -> None:
    hub = EventHub(kept=100)
    publish(hub, "quiet", 10)
    publish(hub, "loud", 1000)
    assert numbers(hub.follow("quiet", 1, Woken()).take()) == list(range(1, 10))
    gap, first, *_ = numbers(hub.follow("loud", 10, Woken()).take())
    assert gap is None, "its own flood made a gap for itself"
    assert first == 910


def test_a_follower_that_missed_nothing_of_its_tenant_gets_no_gap() -> None:
    hub = EventHub(kept=10)
    publish(hub, "loud", 100)
    hub.publish("job.created", 0, "quiet", {"number": 1})
    assert numbers(hub.follow("quiet", 50, Woken()).take()) == [1]


def test_an_event_costs_only_followers_of_its_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Following] = []
    monkeypatch.setattr(Following, "add", lambda following, _: added.append(following))
    hub = EventHub()
    for _ in range(99):
        hub.follow("loud", None, Woken())
    quiet = hub.follow("quiet", None, Woken())
    hub.publish("job.created", 0, "quiet", {})
    assert added == [quiet]
