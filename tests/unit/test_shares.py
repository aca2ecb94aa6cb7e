"""Fair shares: a tenant alone may have everything, and gives way as soon as another needs some."""

from __future__ import annotations

from duetime.domain.shares import Admission, FairCache, FairQueue, Holdings, share_of


def held(capacity: int, **counts: int) -> Holdings:
    holdings = Holdings(capacity)
    for holder, count in counts.items():
        for _ in range(count):
            holdings.add(holder)
    return holdings


def test_a_single_tenant_gets_all_places_and_no_more():
    assert held(3, a=2).ask("a") == Admission(True)
    assert held(3, a=3).ask("a") == Admission(False)


def test_another_tenant_gets_a_place_of_the_largest_holder():
    assert held(10, a=3, b=7).ask("a") == Admission(True, "b")
    assert held(10, a=3, b=7).ask("c") == Admission(True, "b")


def test_a_tenant_that_has_its_share_is_refused():
    assert held(10, a=5, b=5).ask("a") == Admission(False)
    assert held(9, a=4, b=5).ask("a") == Admission(False), "it would have more than the one that gave way"


def test_more_tenants_than_places_do_not_evict_each_other():
    assert held(3, a=1, b=1, c=1).ask("d") == Admission(False)


def test_a_full_cache_evicts_the_oldest_entry_of_the_largest_holder():
    cache = FairCache[str](4)
    for holder, key in (("b", "b1"), ("a", "a1"), ("a", "a2"), ("a", "a3")):
        assert cache.add(holder, key) is None
    assert cache.add("b", "b2") == "a1"
    assert cache.add("b", "b3") == "b1", "it has its share, so it replaces its own oldest"
    assert cache.add("c", "c1") == "a2"
    assert len(cache) == 4


def test_a_key_that_is_added_again_becomes_the_newest_and_takes_no_second_place():
    cache = FairCache[str](2)
    for holder, key in (("a", "1"), ("a", "2"), ("b", "1")):
        assert cache.add(holder, key) is None
    assert "2" in cache
    assert cache.add("a", "3") == "2", "the place of key 1 is b's by now"


def test_a_single_tenant_can_fill_a_queue_and_another_can_still_begin():
    queue = FairQueue[int](4, most=100)
    for key in range(6):
        queue.wait("hostile", key)
    assert [key for _, key in queue.begin()] == [0, 1, 2, 3]
    for key in range(10, 16):
        queue.wait("other", key)
    assert list(queue.begin()) == [("other", 10), ("other", 11)], "its share of the four, though none is free"
    queue.end("other")
    assert list(queue.begin()) == [("other", 12)], "a place that is free goes to the one that holds less"


def test_a_queue_never_begins_more_than_its_hard_bound():
    queue = FairQueue[int](2, most=3)
    for number in range(5):
        queue.wait(f"tenant-{number}", number)
        list(queue.begin())
    assert queue.begun == 3


def test_tenants_with_equal_holdings_begin_in_the_order_of_arrival():
    queue = FairQueue[int](4, most=4)
    for key, holder in enumerate("aaabbb"):
        queue.wait(holder, key)
    assert [holder for holder, _ in queue.begin()] == ["a", "b", "a", "b"]


def test_an_equal_share_is_at_least_one_place():
    assert (share_of(10, 0), share_of(10, 3), share_of(10, 11)) == (10, 3, 1)
