"""Pages of what a store lists: bounded by the query's limit, by bytes, and by what it costs to decode them."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

PAGE_BYTES = 4 * 1024 * 1024  # of rows as JSON; a page has one row at least
PAGE_WEIGHT = 200_000  # of their values (domain.weights)


class Page(list[T]):
    """Rows in order. `is_cut`: there are more, though it has fewer than the query's limit; go on after the last one."""

    is_cut = False
