"""The hub: its followers get the events of their tenant, learn of gaps, and end at once when the node stops."""

from __future__ import annotations

import pytest

from duetime.domain.event_log import PAGE_EVENTS
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
    following = hub.follow(T, woken)
    assert (woken.times, following.take()) == (0, [])
    publish(hub, T, 2)
    assert woken.times > 0
    assert numbers(following.take()) == [0, 1]
    assert following.take() == []


def test_a_close_ends_all_followers_at_once_despite_waiting_events() -> None:
    hub, woken = EventHub(), Woken()
    followers = [hub.follow(T, woken) for _ in range(2)]
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
    hub.close()
    hub.publish("job.created", 0, T, {})  # while the node stops
    assert hub.follow(T, Woken()).is_over


def test_a_follower_takes_a_page_of_events_and_is_woken_for_the_rest() -> None:
    hub, woken = EventHub(), Woken()
    following = hub.follow(T, woken)
    publish(hub, T, PAGE + 1)
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
    following = hub.follow(T, Woken())
    publish(hub, T, LONGEST_QUEUE + 100)
    assert numbers(all_of(following)) == [*range(LONGEST_QUEUE), None]
    publish(hub, T, 1)
    assert numbers(all_of(following)) == [0]


def test_an_event_costs_only_followers_of_its_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Following] = []
    monkeypatch.setattr(Following, "add", lambda following, _: added.append(following))
    hub = EventHub()
    for _ in range(99):
        hub.follow("loud", Woken())
    quiet = hub.follow("quiet", Woken())
    hub.publish("job.created", 0, "quiet", {})
    assert added == [quiet]


def test_the_first_event_of_a_page_is_announced_and_the_others_are_not() -> None:
    hub, announced = EventHub(), Woken()
    hub.on_gathering = announced
    publish(hub, T, 3)
    hub.count({(T, "execution.completed"): 5})
    assert announced.times == 1
    assert len(hub.take_page().list_events()) == 3
    hub.count({(T, "execution.completed"): 5})
    assert announced.times == 2


def test_a_burst_makes_no_object_for_an_event_that_nobody_takes() -> None:
    hub, made = EventHub(), Woken()

    def make(place: int) -> tuple[int, dict[str, object]]:
        made()
        return 0, {"number": place}

    page = [(T, "execution.completed")] * (PAGE_EVENTS + LONGEST_QUEUE)
    hub.publish_all(page, make)
    assert made.times == PAGE_EVENTS + 1, "the one without room shows that the page is full"
    hub.publish_all(page, make)
    assert made.times == PAGE_EVENTS + 1
    hub.publish_all([("quiet", "execution.completed"), *page], make)
    assert made.times == PAGE_EVENTS + 2
    following = hub.follow(T, Woken())  # it says when to look at a log
    hub.publish_all(page, make)
    assert len(all_of(following)) == LONGEST_QUEUE + 1


def test_events_of_the_cluster_are_for_the_operator() -> None:
    hub = EventHub("ops")
    hub.publish_to_operator("node.joined", 7, {"node": 1})
    assert [(event.tenant, event.kind) for event in hub.list_gathered()] == [("ops", "node.joined")]
    hub = EventHub(None)
    hub.publish_to_operator("node.joined", 7, {"node": 1})
    assert hub.list_gathered() == []
