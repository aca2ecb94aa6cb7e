"""A log accepts a limited number of lines per second, and gets the number of omitted ones."""

from __future__ import annotations

from duetime.domain.line_rate import LineRateLimiter


def test_lines_beyond_the_rate_are_omitted_and_counted():
    pace = LineRateLimiter(2)
    assert [pace.admit(100.0 + number / 10) for number in range(5)] == [True, True, False, False, False]
    assert pace.take_left_out() == 3
    assert pace.take_left_out() == 0


def test_each_second_has_its_own_lines():
    pace = LineRateLimiter(1)
    assert [pace.admit(now) for now in (5.0, 5.9, 6.0, 6.5, 7.5)] == [True, False, True, False, True]
    assert pace.take_left_out() == 2
