"""What one node tells the others: something is due soon, something waits, something is to be stopped, shards are free.

A hint makes a thing happen sooner. The store is the truth, and everybody looks there once a second: a hint that is lost
costs a second, never a run.
"""

from __future__ import annotations

import msgspec

from duetime.domain.instants import LATEST

MOST_CANCELS = 100  # in one hint; those beyond are found in the store


class Hint(msgspec.Struct, frozen=True, array_like=True):
    due_at: int = LATEST  # the earliest of timers that came
    due_until: int = 0  # the latest of them
    waiting_at: int = LATEST  # the earliest of executions that wait for a worker
    cancel: tuple[str, ...] = ()  # executions that were asked to stop
    shards_free: bool = False  # somebody gave up shards: whoever has too few should look now

    def merged(self, other: Hint) -> Hint:
        """Both in one: it says no less than either."""
        return Hint(
            min(self.due_at, other.due_at),
            max(self.due_until, other.due_until),
            min(self.waiting_at, other.waiting_at),
            (*self.cancel, *other.cancel)[:MOST_CANCELS],
            self.shards_free or other.shards_free,
        )
