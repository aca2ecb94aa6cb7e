"""The size of a page: everything that fits, half of a page that timed out, and more again after a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.page_size import SUCCESSES_TO_GROW, PageSize


def test_the_first_page_has_the_largest_size():
    assert PageSize.of(2048).size == 2048


def test_a_timeout_halves_the_page_size():
    assert PageSize.of(2048).after_timeout(2048).size == 1024
    assert PageSize.of(2048).after_timeout(100).size == 50


def test_the_page_size_is_at_least_one():
    page = PageSize.of(2048)
    for _ in range(40):
        page = page.after_timeout(page.size)
    assert page.size == 1


def test_full_pages_that_are_written_restore_the_page_size():
    page = PageSize.of(100).after_timeout(100).after_timeout(50)
    sizes = []
    while page.size < 100:
        sizes.append(page.size)
        page = page.after_success(page.size)
    assert sizes == [25] * SUCCESSES_TO_GROW + [50] * SUCCESSES_TO_GROW
    assert page == PageSize.of(100)


def test_a_page_that_is_not_full_does_not_count():
    page = PageSize.of(100).after_timeout(100)
    for _ in range(100):
        page = page.after_success(49)
    assert page.size == 50


def test_a_timeout_resets_the_count_of_successes():
    page = PageSize.of(100).after_timeout(100)
    for _ in range(SUCCESSES_TO_GROW - 1):
        page = page.after_success(50)
    page = page.after_timeout(50)
    assert page.after_success(25).size == 25


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 50_000))
def test_all_rows_are_written_with_few_timeouts_at_any_speed_of_the_store(most: int, can: int, rows: int):
    """A store that times out above `can` rows: all rows are written, and most tries succeed."""
    page, timeouts, pages = PageSize.of(most), 0, 0
    while rows:
        tried = min(rows, page.size)
        if tried > can:
            page, timeouts = page.after_timeout(tried), timeouts + 1
        else:
            page, pages, rows = page.after_success(tried), pages + 1, rows - tried
        assert 1 <= page.size <= most
    assert timeouts <= 13 + pages / SUCCESSES_TO_GROW
