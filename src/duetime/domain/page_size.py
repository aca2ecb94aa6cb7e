"""The number of rows that are written at once, to a store that must respond within a time limit.

After a page that took too long, the next page has half the rows. So all rows that have gathered while the store was
unavailable are written in the end, however slow the store is. A page grows again only after several full ones were
written, so that a store that stays slow causes few timeouts.
"""

from __future__ import annotations

import msgspec

SUCCESSES_TO_GROW = 8  # full pages in a row, before a page is twice as large


class PageSize(msgspec.Struct, frozen=True):
    most: int
    size: int
    successes: int = 0  # full pages that were written at this size

    @classmethod
    def of(cls, most: int) -> PageSize:
        return cls(most, most)

    def after_timeout(self, count: int) -> PageSize:
        """Returns the size after a page of `count` rows took too long."""
        return PageSize(self.most, max(1, min(self.size, count) // 2))

    def after_success(self, count: int) -> PageSize:
        """Returns the size after a page of `count` rows was written in time."""
        if count < self.size or self.size == self.most:
            return self
        if self.successes + 1 < SUCCESSES_TO_GROW:
            return PageSize(self.most, self.size, self.successes + 1)
        return PageSize(self.most, min(2 * self.size, self.most))
