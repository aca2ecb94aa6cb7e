"""Pages: writes long lists one page at a time, each as large as the store can write within its time limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import structlog

from duetime.domain.errors import TimedOut
from duetime.domain.page_size import PageSize

log = structlog.get_logger()

T = TypeVar("T")


class Pages:
    """Up to `most` rows per page, fewer if the store is slow. `domain.page_size` decides."""

    def __init__(self, most: int) -> None:
        self._page = PageSize.of(most)

    @property
    def size(self) -> int:
        return self._page.size

    @contextmanager
    def writing(self, count: int) -> Iterator[None]:
        """Context of a write of `count` rows. The next page is smaller if the write raises TimedOut."""
        try:
            yield
        except TimedOut:
            self._page = self._page.after_timeout(count)
            log.warning("a page took too long: the next one is smaller", rows=count, next=self.size)
            raise
        self._page = self._page.after_success(count)

    async def write(self, rows: Sequence[T], write: Callable[[Sequence[T]], Awaitable[object]]) -> None:
        """Writes all rows. Raises TimedOut at the first page that takes too long; the pages before it are written."""
        done = 0
        while done < len(rows):
            page = rows[done : done + self.size]
            with self.writing(len(page)):
                await write(page)
            done += len(page)
