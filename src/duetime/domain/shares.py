"""Fair shares of what is bounded: which tenant gets in, which is refused, and which gives way.

The rule is max-min fairness. A tenant alone may hold everything. When all is taken, a tenant that holds less than the
one with the most gets a place of that one, as long as it does not hold more than that one afterwards; so a tenant below
its equal share always gets in, and two tenants never take a place from each other in turns.

- `Holdings` counts places and decides.
- `FairCache` keeps things whose loss is harmless: adding always works, and the oldest of the largest tenant goes.
- `FairQueue` is for places that can't be taken back (threads): who is below its share begins beside those who hold too
  much, up to a hard bound.

The order in which executions are dispatched is another matter, and not decided here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Admission(NamedTuple):
    admitted: bool
    evicted: str | None = None  # the holder that loses a place for it


def gives_way_to(most: int, held: int) -> bool:
    """Whether one that holds `most` gives a place to one that holds `held`, and has no fewer then."""
    return held + 2 <= most


def share_of(capacity: int, holders: int) -> int:
    """The equal share of each of so many holders: one place at least."""
    return max(1, capacity // max(1, holders))


def may_have_more(held: int, total: int, capacity: int, holders: int) -> bool:
    """For what can't be taken back: anybody while there is room, and beyond it only one below its equal share.

    So `total` stays below `capacity` times 1 + 1/2 + 1/3 + … for as many holders as there are.
    """
    return total < capacity or held < share_of(capacity, holders)


def fair_level(held: Iterable[int], capacity: int) -> int:
    """The most that each holder keeps when all that hold more are cut down to one level, so that all fit.

    Nobody is cut below the equal share. If all fit as they are, it is what the largest holds.
    """
    left, ordered = capacity, sorted(held)
    for number, one in enumerate(ordered):
        level = left // (len(ordered) - number)
        if one > level:
            return max(0, level)
        left -= one
    return ordered[-1] if ordered else 0


class Holdings:
    """How many of `capacity` places each holder has. Every operation takes constant time."""

    __slots__ = ("_by_count", "_counts", "_most", "capacity", "total")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.total = 0
        self._counts: dict[str, int] = {}
        self._by_count: dict[int, dict[str, None]] = {}  # a dict of holders keeps the order in which they came
        self._most = 0

    def __len__(self) -> int:
        """How many hold any."""
        return len(self._counts)

    def __contains__(self, holder: str) -> bool:
        return holder in self._counts

    def of(self, holder: str) -> int:
        return self._counts.get(holder, 0)

    @property
    def is_full(self) -> bool:
        return self.total >= self.capacity

    def ask(self, holder: str) -> Admission:
        """Whether one more for this holder is admitted, and who loses one for it. Changes nothing."""
        if self.total < self.capacity:
            return Admission(True)
        if gives_way_to(self._most, self._counts.get(holder, 0)):
            return Admission(True, self.largest())
        return Admission(False)

    def gives_way(self, holder: str) -> str:
        """Whose place is replaced when this holder adds one although all are taken: its own if it has its share."""
        held = self._counts.get(holder, 0)
        return self.largest() if not held or gives_way_to(self._most, held) else holder

    def largest(self) -> str:
        """The holder with the most; of several the one that has had so many for longest."""
        return next(iter(self._by_count[self._most]))

    def add(self, holder: str) -> None:
        count = self._counts.get(holder, 0) + 1
        self._move(holder, count - 1, count)
        self._most = max(self._most, count)
        self.total += 1

    def remove(self, holder: str) -> None:
        count = self._counts[holder] - 1
        self._move(holder, count + 1, count)
        if self._most not in self._by_count:
            self._most -= 1  # whoever had the most now has one less
        self.total -= 1

    def _move(self, holder: str, before: int, after: int) -> None:
        if before:
            same = self._by_count[before]
            del same[holder]
            if not same:
                del self._by_count[before]
        if after:
            self._counts[holder] = after
            self._by_count.setdefault(after, {})[holder] = None
        else:
            del self._counts[holder]


class FairCache(Generic[K]):
    """Keys by holder, each holder's in the order in which they were added. A key is added once, by one holder."""

    def __init__(self, capacity: int) -> None:
        self._holdings = Holdings(capacity)
        self._keys: dict[str, OrderedDict[K, None]] = {}
        self._holder_of: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._holder_of)

    def __contains__(self, key: K) -> bool:
        return key in self._holder_of

    def add(self, holder: str, key: K) -> K | None:
        """Answers the key that is dropped to make room, if one is."""
        self.discard(key)
        dropped: K | None = None
        if self._holdings.is_full:
            dropped = next(iter(self._keys[self._holdings.gives_way(holder)]))
            self.discard(dropped)
        self._holdings.add(holder)
        self._keys.setdefault(holder, OrderedDict())[key] = None
        self._holder_of[key] = holder
        return dropped

    def discard(self, key: K) -> None:
        holder = self._holder_of.pop(key, None)
        if holder is None:
            return
        self._holdings.remove(holder)
        keys = self._keys[holder]
        del keys[key]
        if not keys:
            del self._keys[holder]


class FairQueue(Generic[K]):
    """Who may begin next, where what has begun can't be taken back.

    Up to `capacity` begin in any case, those of the tenant that holds the least first. Beyond, only a tenant that holds
    less than its equal share begins, so that one tenant's stuck places do not keep the others out. `most` bounds all.
    """

    def __init__(self, capacity: int, most: int) -> None:
        self._holdings = Holdings(capacity)
        self._most = most
        self._waiting: dict[str, OrderedDict[K, None]] = {}

    @property
    def begun(self) -> int:
        return self._holdings.total

    def of(self, holder: str) -> int:
        """How many of this holder have begun."""
        return self._holdings.of(holder)

    def waiting(self, holder: str) -> int:
        """How many of this holder wait."""
        return len(self._waiting.get(holder, ()))

    def wait(self, holder: str, key: K) -> None:
        self._waiting.setdefault(holder, OrderedDict())[key] = None

    def withdraw(self, holder: str, key: K) -> None:
        """It waits no longer. One that does not wait is no error."""
        waiting = self._waiting.get(holder)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._waiting[holder]

    def newest(self, holder: str) -> K:
        """Of those that wait."""
        return next(reversed(self._waiting[holder]))

    def begin(self) -> Iterator[tuple[str, K]]:
        """Those that may begin now, in order. Each counts as begun until `end`."""
        while self._waiting and self._holdings.total < self._most:
            holder = min(self._waiting, key=self._holdings.of)  # of several the one that has waited for longest
            held, total, capacity = self._holdings.of(holder), self._holdings.total, self._holdings.capacity
            if not may_have_more(held, total, capacity, self._active()):
                return
            waiting = self._waiting.pop(holder)
            key, _ = waiting.popitem(last=False)
            if waiting:
                self._waiting[holder] = waiting  # behind the others
            self._holdings.add(holder)
            yield holder, key

    def end(self, holder: str) -> None:
        self._holdings.remove(holder)

    def _active(self) -> int:
        """How many hold a place or wait for one."""
        return len(self._holdings) + sum(holder not in self._holdings for holder in self._waiting)
