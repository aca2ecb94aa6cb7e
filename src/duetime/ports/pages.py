"""Pages that a store lists: bounded by the query's limit, by bytes, and by the cost of decoding them."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

PAGE_BYTES = 4 * 1024 * 1024  # of rows as JSON; a page has at least one row
PAGE_WEIGHT = 200_000  # of their values (domain.weights)


class Page(list[T]):
    """Rows in order. `is_cut`: more rows follow, although the page is below the limit; continue after the last row."""

    is_cut = False
