"""Fair shares of a bounded number of places: which tenant is admitted, which is refused, and which loses a place.

The rule is max-min fairness. A tenant alone may hold everything. When all places are taken, a tenant may take one from
the largest tenant, unless it would then hold more than that tenant. So a tenant below its equal share is always
admitted, and two tenants never take a place from each other in turns.

- `Holdings` counts places and decides.
- `FairCache` keeps keys whose loss is harmless: adding always works, and drops the oldest key of the largest tenant.
- `FairQueue` is for places that can't be taken back (threads): a tenant below its share begins even if others hold too
  much, up to a hard bound.

The order in which executions are dispatched is not decided here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Admission(NamedTuple):
    admitted: bool
    evicted: str | None = None  # the holder that loses a place to the new one


def gives_way_to(most: int, held: int) -> bool:
    """Returns whether a holder of `most` places gives one to a holder of `held`, and still has at least as many."""
    return held + 2 <= most


def share_of(capacity: int, holders: int) -> int:
    """Returns the equal share of each of `holders` holders: at least one place."""
    return max(1, capacity // max(1, holders))


def may_have_more(held: int, total: int, capacity: int, holders: int) -> bool:
    """For places that can't be taken back: any holder while there is room, and beyond it one below its equal share.

    So `total` stays below `capacity` times 1 + 1/2 + 1/3 + … for as many holders as there are.
    """
    return total < capacity or held < share_of(capacity, holders)


def fair_level(held: Iterable[int], capacity: int) -> int:
    """Returns the level to which all holders above it have to be cut, so that all fit into `capacity`.

    No holder is cut below the equal share. If all fit as they are, it is the count of the largest holder.
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
        self._by_count: dict[int, dict[str, None]] = {}  # each dict keeps the order in which holders reached the count
        self._most = 0

    def __len__(self) -> int:
        """Returns the number of holders with at least one place."""
        return len(self._counts)

    def __contains__(self, holder: str) -> bool:
        return holder in self._counts

    def of(self, holder: str) -> int:
        return self._counts.get(holder, 0)

    @property
    def is_full(self) -> bool:
        return self.total >= self.capacity

    def ask(self, holder: str) -> Admission:
        """Returns whether this holder may have one more place, and which holder loses one for it. Changes nothing."""
        if self.total < self.capacity:
            return Admission(True)
        if gives_way_to(self._most, self._counts.get(holder, 0)):
            return Admission(True, self.largest())
        return Admission(False)

    def gives_way(self, holder: str) -> str:
        """Returns the holder that loses a place if `holder` adds one when all are taken: itself if it has its share."""
        held = self._counts.get(holder, 0)
        return self.largest() if not held or gives_way_to(self._most, held) else holder

    def largest(self) -> str:
        """Returns the holder with the most places; of several, the one that has had that many for longest."""
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
            self._most -= 1  # the largest holder now has one less
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
        """Add a key. Returns the key that was dropped to make room, if any."""
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
    """Decides which waiting key begins next, where a place can't be taken back once its key has begun.

    Up to `capacity` keys always begin, those of the tenant that holds the least first. Beyond that, only a tenant below
    its equal share begins, so that one tenant's stuck places do not keep the others out. `most` bounds all.
    """

    def __init__(self, capacity: int, most: int) -> None:
        self._holdings = Holdings(capacity)
        self._most = most
        self._waiting: dict[str, OrderedDict[K, None]] = {}

    @property
    def begun(self) -> int:
        return self._holdings.total

    def of(self, holder: str) -> int:
        """Returns how many keys of this holder have begun."""
        return self._holdings.of(holder)

    def waiting(self, holder: str) -> int:
        """Returns how many keys of this holder wait."""
        return len(self._waiting.get(holder, ()))

    def wait(self, holder: str, key: K) -> None:
        self._waiting.setdefault(holder, OrderedDict())[key] = None

    def withdraw(self, holder: str, key: K) -> None:
        """Remove a waiting key. It is no error if the key does not wait."""
        waiting = self._waiting.get(holder)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self._waiting[holder]

    def newest(self, holder: str) -> K:
        """Returns the holder's newest waiting key."""
        return next(reversed(self._waiting[holder]))

    def begin(self) -> Iterator[tuple[str, K]]:
        """Yields the keys that may begin now, in order. Each counts as begun until `end`."""
        while self._waiting and self._holdings.total < self._most:
            holder = min(self._waiting, key=self._holdings.of)  # of several, the one that has waited longest
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
        """Returns how many holders have a place or wait for one."""
        return len(self._holdings) + sum(holder not in self._holdings for holder in self._waiting)
