"""The number of prefetched calls, computed from the throughput while calls are held."""

from __future__ import annotations

from duetime.functions.worker import AHEAD_SECONDS, Throughput


def test_nothing_is_fetched_ahead_before_the_first_calls() -> None:
    assert Throughput().ahead(1000, 1.0) == 0


def test_as_many_quick_calls_are_fetched_ahead_as_end_soon() -> None:
    pace = Throughput()
    pace.came(1000)
    for second in range(1, 20):
        ahead = pace.ahead(2000 * second, float(second))
    assert 0.9 * 2000 * AHEAD_SECONDS <= ahead <= 2000 * AHEAD_SECONDS


def test_time_without_calls_does_not_lower_the_throughput() -> None:
    """Only time with a held call counts: a second of waiting between two polls does not."""
    pace = Throughput()
    pace.came(1000)
    for page in range(1, 20):
        ahead = pace.ahead(1000 * page, 0.1 * page)
    assert ahead >= 0.9 * 10_000 * AHEAD_SECONDS


def test_a_few_quick_calls_limit_the_next_poll() -> None:
    pace = Throughput()
    pace.came(3)
    for page in range(1, 20):
        ahead = pace.ahead(3 * page, 0.0021 * page)
    assert ahead == 12
