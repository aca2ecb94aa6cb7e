"""How many calls are fetched ahead: as many as end in a moment, by the time in which there were any."""

from __future__ import annotations

from duetime.functions.worker import AHEAD_SECONDS, Throughput


def test_nothing_is_fetched_ahead_before_anything_has_come() -> None:
    assert Throughput().ahead(1000, 1.0) == 0


def test_quick_calls_are_fetched_ahead_as_many_as_end_in_a_moment() -> None:
    pace = Throughput()
    pace.came(1000)
    for second in range(1, 20):
        ahead = pace.ahead(2000 * second, float(second))
    assert 0.9 * 2000 * AHEAD_SECONDS <= ahead <= 2000 * AHEAD_SECONDS


def test_time_in_which_the_source_had_nothing_makes_it_no_slower() -> None:
    """Only time in which a call was held comes in: a second of waiting between two pages is none of it."""
    pace = Throughput()
    pace.came(1000)
    for page in range(1, 20):
        ahead = pace.ahead(1000 * page, 0.1 * page)
    assert ahead >= 0.9 * 10_000 * AHEAD_SECONDS


def test_a_few_quick_calls_promise_nothing_about_many() -> None:
    pace = Throughput()
    pace.came(3)
    for page in range(1, 20):
        ahead = pace.ahead(3 * page, 0.0021 * page)
    assert ahead == 12
