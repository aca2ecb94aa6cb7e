"""Rules for closing connections to the database: too old, unused for too long, or more than needed."""

from __future__ import annotations

from math import inf

import pytest

from duetime.domain.upkeep import SURPLUS_SECONDS, Idle, Upkeep

NOW = 10_000.0


def used(*ago: float) -> list[Idle]:
    """Connections that were last used this many seconds ago, and never become too old."""
    return [Idle(NOW - seconds, inf) for seconds in ago]


def test_recently_used_connections_stay_open():
    assert Upkeep(most_idle=3).unneeded(used(9, 5, 0), NOW) == []


def test_unused_connections_are_closed():
    assert Upkeep(most_idle=5, idle_seconds=60).unneeded(used(61, 60, 59), NOW) == [0, 1]
    assert Upkeep(most_idle=5).unneeded(used(1e9), NOW) == []


def test_connections_beyond_the_limit_are_closed_after_a_burst_longest_unused_first():
    ago = SURPLUS_SECONDS + 1
    assert Upkeep(most_idle=2).unneeded(used(ago, ago, ago, ago), NOW) == [0, 1]
    assert Upkeep(most_idle=2).unneeded(used(ago, 1, 1, 1), NOW) == [0]
    assert Upkeep(most_idle=0).unneeded(used(ago), NOW) == [0]


@pytest.mark.parametrize(("ends_at", "closed"), [(NOW, [0]), (NOW + 1, [])])
def test_old_connections_are_closed(ends_at: float, closed: list[int]):
    assert Upkeep(most_idle=5).unneeded([Idle(NOW, ends_at)], NOW) == closed


@pytest.mark.parametrize(("jitter", "ends_at"), [(0.0, NOW + 1800), (0.5, NOW + 1710), (1.0, NOW + 1620)])
def test_connections_that_were_opened_together_are_closed_at_different_times(jitter: float, ends_at: float):
    assert Upkeep(most_idle=5, lifetime_seconds=1800).ends_at(NOW, jitter) == ends_at
    assert Upkeep(most_idle=5).ends_at(NOW, jitter) == inf
