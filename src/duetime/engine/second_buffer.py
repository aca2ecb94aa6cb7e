"""The second buffer: while a tenant has more timers due than can be fired at once, it reads those of all other tenants.

So the others need not wait. The first buffer still reads everything. If it fires a timer that the second one has fired
already, the store refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.fairness import FEW_DUE, crowding
from duetime.domain.instants import SECOND
from duetime.domain.plan import GRACE, Place
from duetime.engine.timer_buffer import READ_AHEAD, Due, TimerBuffer
from duetime.ports.store import Store

LOOK = SECOND // 4  # how often to look for crowding tenants: those with hundreds of due timers
LOOK_BACK = 5 * SECOND
SHARED_FOR = 2 * SECOND  # how long pages stay small after other tenants were due beside crowding ones
CROWDING_FOR = 10 * SECOND
MOST_FIRED = 100_000


class SecondBuffer:
    """It is open while there are crowding tenants."""

    def __init__(self, store: Store, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._random_bytes = random_bytes
        self._buffer: TimerBuffer | None = None
        self._crowding: dict[str, int] = {}  # tenants with hundreds of due timers, and when that was last seen
        self._looked_at = 0
        self._looked_back_at = 0
        self._fired: set[Place] = set()  # the first buffer reads these timers later
        self._was_due_at = 0

    @property
    def is_open(self) -> bool:
        return self._buffer is not None

    def is_shared(self, now: int) -> bool:
        """Returns whether other tenants were due recently: the store must serve them, too."""
        return self._buffer is not None and abs(now - self._was_due_at) < SHARED_FOR

    def hint(self, due_at: int) -> None:
        if self._buffer is not None:
            self._buffer.hint(due_at)

    def look(self, now: int, first: TimerBuffer, shards: tuple[int, ...] | None) -> None:
        """Finds the tenants with so many due timers that the others need this buffer. Opens or closes it."""
        if abs(now - self._looked_at) < LOOK or (self._buffer is None and first.held() <= FEW_DUE):
            return
        self._looked_at = now
        held = first.count_by_tenant()
        if self._buffer is not None:
            held |= self._buffer.count_by_tenant()
        self._crowding |= dict.fromkeys(crowding(held), now)
        # Remember them for a while: more due timers of such a tenant may lie beyond what was read so far.
        self._crowding = {tenant: at for tenant, at in self._crowding.items() if abs(now - at) < CROWDING_FOR}
        without = frozenset(self._crowding)
        if not without:
            self.close()
        elif self._buffer is None or without != self._buffer.without:
            # Timers that are more than GRACE late were missed: the first buffer handles them, in their order.
            self._buffer = TimerBuffer(self._store, self._random_bytes, shards, without, now - GRACE)
            self._looked_back_at = now

    async def take(self, now: int, most: int) -> Due | None:
        """Returns due timers to fire now, at most `most`, and reads on."""
        if (buffer := self._buffer) is None:
            return None
        if abs(now - self._looked_back_at) >= LOOK_BACK:
            self._looked_back_at = now
            buffer.look_back(now - GRACE)
        if buffer.is_read():
            await buffer.end_reading()
        due = buffer.take(now, most)
        buffer.read_on(now)
        if due is not None:
            self._was_due_at = now
            if len(self._fired) > MOST_FIRED:
                self._fired.clear()  # the set only saves work: the store refuses to fire them a second time
            self._fired.update(timer.place for timer in due.timers)
        return due

    def seconds_left(self, now: int) -> float:
        """Returns the seconds until this buffer has a due timer. A timer that was not read is not due soon."""
        first_due_at = None if self._buffer is None else self._buffer.first_due_at()
        return (READ_AHEAD // 2 if first_due_at is None else first_due_at - now) / SECOND

    def without_fired(self, due: Due) -> Due:
        """Returns timers of the first buffer without those that this one has fired meanwhile."""
        if not self._fired:
            return due
        timers, planned = due
        kept = [number for number, timer in enumerate(timers) if timer.place not in self._fired]
        if len(kept) == len(timers):
            return due
        self._fired.difference_update(timer.place for timer in timers)
        return Due([timers[number] for number in kept], None if planned is None else planned.only(kept))

    def close(self) -> None:
        self._buffer = None
        self._fired.clear()
