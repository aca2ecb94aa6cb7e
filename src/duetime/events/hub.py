"""The events that this node publishes: gathered for the log, and handed to the followers on this node at once.

Publishing an event touches only the followers of its tenant. Tenants share the page that is gathered fairly: a tenant
with many events costs the others none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from duetime.domain.event_log import Event, GatheredPage

LONGEST_QUEUE = 1000  # events; a follower further behind gets a gap (None) instead: this bounds memory
PAGE = 500  # events that a follower takes at once
# Whose tenant's admins learn of nodes and shards. (Without identity, the local caller is an admin of this tenant.)
LOCAL_OPERATOR = "default"

Data = dict[str, object]


class Following:
    """The events of one tenant that one follower has not taken yet. Call `close` when the follower ends.

    `wake()` is called when there are events to take, and when the hub closes.
    """

    def __init__(self, tenant: str, hub: EventHub, wake: Callable[[], None]) -> None:
        self.tenant = tenant
        self._waiting: deque[Event | None] = deque()
        self._has_gap = False  # at the end of those that wait: no event is added behind it
        self._hub = hub
        self._wake = wake

    @property
    def is_over(self) -> bool:
        """The hub is closed: the follower reads the remaining events elsewhere."""
        return self._hub.is_closed

    def add(self, event: Event) -> None:
        if self._has_gap:
            return
        self._has_gap = len(self._waiting) >= LONGEST_QUEUE
        self._waiting.append(None if self._has_gap else event)
        self._wake()

    def end(self) -> None:
        self._waiting.clear()
        self._wake()

    def take(self) -> list[Event | None]:
        """Returns the next events, and None where some were lost. Wakes the follower again if there are more."""
        taken = list(islice(self._waiting, PAGE))
        for _ in taken:
            self._waiting.popleft()
        if self._waiting:
            self._wake()
        else:
            self._has_gap = False
        return taken

    def close(self) -> None:
        self._hub.remove(self)


class EventHub:
    """`operator`: the tenant whose admins learn of nodes and shards; None: nobody does."""

    def __init__(self, operator: str | None = LOCAL_OPERATOR) -> None:
        self._operator = operator
        self._page = GatheredPage()
        self._followers: dict[str, set[Following]] = {}  # by tenant
        self.on_gathering: Callable[[], None] = lambda: None  # called when the page gets its first event
        self.is_closed = False

    @property
    def followers(self) -> int:
        return sum(map(len, self._followers.values()))

    def list_gathered(self) -> list[Event]:
        """Returns the events that are not in the log yet, by tenant."""
        return self._page.list_events()

    def has_gathered(self) -> bool:
        return bool(self._page)

    def set_room(self, room: int) -> None:
        """Sets how many events the page keeps one by one, when it gets its first."""
        self._page.set_room(room)

    def take_page(self) -> GatheredPage:
        """Returns what was gathered, and begins a new page."""
        page, self._page = self._page, GatheredPage()
        return page

    def close(self) -> None:
        """Ends all followers now. Events are still gathered."""
        self.is_closed = True
        for followers in self._followers.values():
            for following in followers:
                following.end()

    def wants(self, tenant: str) -> bool:
        """Returns whether events of this tenant are taken one by one now. If not, `count` them: it costs less."""
        return not self._page.is_short(tenant) or tenant in self._followers

    def publish(self, kind: str, at: int, tenant: str, data: Data, owner: str | None = None) -> None:
        event = Event(kind, at, tenant, data, owner)
        if not self._page:
            self.on_gathering()
        self._page.add(event)
        for following in self._followers.get(tenant, ()):
            following.add(event)

    def publish_to_operator(self, kind: str, at: int, data: Data) -> None:
        """Publishes an event of the whole cluster, for admins of the operator's tenant."""
        if self._operator is not None:
            self.publish(kind, at, self._operator, data)

    def count(self, counted: Mapping[tuple[str, str], int]) -> None:
        """Adds events by (tenant, kind) that nobody takes one by one."""
        if counted and not self._page:
            self.on_gathering()
        for (tenant, kind), number in counted.items():
            self._page.count(tenant, kind, number)

    def publish_alike(self, kind: str, tenants: Sequence[str], make: Callable[[int], tuple[int, Data]]) -> None:
        """As `publish_all`, for a page of events of one kind: in a burst, tenants are counted in C."""
        counted = Counter(tenants)
        if not any(self.wants(tenant) for tenant in counted):
            self.count({(tenant, kind): number for tenant, number in counted.items()})
            return
        self.publish_all([(tenant, kind) for tenant in tenants], make)

    def publish_all(self, events: Sequence[tuple[str, str]], make: Callable[[int], tuple[int, Data]]) -> None:
        """Publishes a page of events, each given as (tenant, kind). `make(place)` returns the time and data of one."""
        counted = Counter(events)
        if not any(self.wants(tenant) for tenant, _ in counted):  # a burst: nothing is done for each
            self.count(counted)
            return
        counted.clear()
        for place, key in enumerate(events):
            if self.wants(key[0]):
                at, data = make(place)
                self.publish(key[1], at, key[0], data)
            else:
                counted[key] += 1
        self.count(counted)

    def follow(self, tenant: str, wake: Callable[[], None]) -> Following:
        """Returns the events of a tenant on this node, from now on."""
        following = Following(tenant, self, wake)
        self._followers.setdefault(tenant, set()).add(following)
        return following

    def remove(self, following: Following) -> None:
        followers = self._followers.get(following.tenant, set())
        followers.discard(following)
        if not followers:
            self._followers.pop(following.tenant, None)
