"""Hints that nodes send each other: timers are due soon, executions wait or have to be cancelled, shards are free,
events were logged.

A hint only saves time. The store is the truth, and every node reads it once a second: a lost hint costs a second, never
an execution.
"""

from __future__ import annotations

import msgspec

from duetime.domain.instants import LATEST

MOST_CANCELS = 100  # in one hint; those beyond are found in the store


class Hint(msgspec.Struct, frozen=True, array_like=True):
    due_at: int = LATEST  # the earliest due instant of the new timers
    due_until: int = 0  # the latest one
    waiting_at: int = LATEST  # the earliest of executions that wait for a worker
    cancel: tuple[str, ...] = ()  # executions whose cancellation was requested
    shards_free: bool = False  # a node gave up shards: nodes that own too few should look now
    events: bool = False  # the log of events has a new page

    def merged(self, other: Hint) -> Hint:
        """Returns one hint that covers both."""
        cancel = (*self.cancel, *other.cancel)[:MOST_CANCELS]
        return Hint(
            min(self.due_at, other.due_at), max(self.due_until, other.due_until),
            min(self.waiting_at, other.waiting_at), cancel, self.shards_free or other.shards_free,
            self.events or other.events,
        )  # fmt: skip
