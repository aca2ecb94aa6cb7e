"""Which connections to the database are closed: too old, unused for too long, or more than are wanted."""

from __future__ import annotations

from math import inf

import pytest

from duetime.domain.upkeep import SURPLUS_SECONDS, Idle, Upkeep

NOW = 10_000.0


def used(*ago: float) -> list[Idle]:
    """Connections that were last used so many seconds ago, and never become too old."""
    return [Idle(NOW - seconds, inf) for seconds in ago]


def test_what_was_used_lately_is_kept():
    assert Upkeep(most_idle=3).unneeded(used(9, 5, 0), NOW) == []


def test_what_was_not_used_for_long_is_closed():
    assert Upkeep(most_idle=5, idle_seconds=60).unneeded(used(61, 60, 59), NOW) == [0, 1]
    assert Upkeep(most_idle=5).unneeded(used(1e9), NOW) == []


def test_beyond_the_most_the_ones_used_longest_ago_are_closed_once_a_burst_is_over():
    ago = SURPLUS_SECONDS + 1
    assert Upkeep(most_idle=2).unneeded(used(ago, ago, ago, ago), NOW) == [0, 1]
    assert Upkeep(most_idle=2).unneeded(used(ago, 1, 1, 1), NOW) == [0]
    assert Upkeep(most_idle=0).unneeded(used(ago), NOW) == [0]


@pytest.mark.parametrize(("ends_at", "closed"), [(NOW, [0]), (NOW + 1, [])])
def test_what_is_too_old_is_closed(ends_at: float, closed: list[int]):
    assert Upkeep(most_idle=5).unneeded([Idle(NOW, ends_at)], NOW) == closed


@pytest.mark.parametrize(("chance", "ends_at"), [(0.0, NOW + 1800), (0.5, NOW + 1710), (1.0, NOW + 1620)])
def test_connections_that_were_opened_together_do_not_end_together(chance: float, ends_at: float):
    assert Upkeep(most_idle=5, lifetime_seconds=1800).ends_at(NOW, chance) == ends_at
    assert Upkeep(most_idle=5).ends_at(NOW, chance) == inf
