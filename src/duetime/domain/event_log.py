"""The log of events: what a page of it holds, and how its events are numbered.

A node gathers the events of a moment in a `GatheredPage`: one by one while there is room, which tenants share fairly,
and counted by kind beyond. So a burst costs a bounded page, and its followers are told what is missing.

A page's number is the time in ms at which it was added, or the number after the last page if that is higher. So numbers
only grow, tell a tenant nothing of the pages of others, and go on growing in another database. An event's id is the
page's number and its place among the tenant's events of that page, in one integer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from duetime.domain.instants import MINUTE
from duetime.domain.shares import Holdings

WINDOW = 10 * MINUTE  # for so long events are kept, so that followers can resume
MOST_BYTES = 256 * 1024 * 1024  # of all kept events; beyond, the oldest are removed sooner
PLACES = 1 << 10  # ids of each page
FIRST_NUMBER = 10**12  # of a page (September 2001): a position before is of an earlier version, which counted from 1

PAGE_EVENTS = 500  # kept one by one in a page
BURST_EVENTS = 3_000  # a node writes so many events one by one before SUSTAINED_EVENTS limits it
SUSTAINED_EVENTS = 500  # a second
LEAST_EVENTS = 50  # that a page has room for
MOST_COUNTED_TENANTS = 2000  # of a page, with events that are only counted

OMITTED = "events.omitted"
EVERY_TENANT = ""  # events of more tenants were omitted than a page can say: all followers have a gap


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Two events are equal if they are the same object: an event is a key of caches, though its data is a dict."""

    kind: str  # job.created, job.paused, execution.completed, …
    at: int
    tenant: str
    data: dict[str, object]
    owner: str | None = None  # of the job; None: the publisher does not know it
    id: int = 0  # 0: not read from the log


class StoredEvent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event in the log: one of the list of a tenant's events in a page."""

    kind: str
    at: int
    data: dict[str, object]
    owner: str | None = None


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """The events of one tenant in a page. `events`: JSON, a list of StoredEvent. `size`: of that text, in bytes."""

    tenant: str
    size: int
    events: str


class LoggedEvents(msgspec.Struct, frozen=True, array_like=True):
    """The events of one tenant in a page, as read from the log."""

    number: int
    tenant: str
    events: list[StoredEvent]


class EventPages(msgspec.Struct, frozen=True, array_like=True):
    """A read of the log. `head`: the last page's number. `pruned`: pages up to this number may have been removed."""

    head: int
    pruned: int
    rows: list[LoggedEvents]  # by number


class GatheredPage:
    """The events of a moment, before they are written. Every operation takes constant time."""

    def __init__(self, room: int = PAGE_EVENTS) -> None:
        self._events: dict[str, list[Event]] = {}
        self._counted: dict[str, Counter[str]] = {}
        self._holdings = Holdings(room)
        self._is_every_tenant_short = False

    def __bool__(self) -> bool:
        return bool(self._events or self._counted or self._is_every_tenant_short)

    def set_room(self, room: int) -> None:
        """Sets how many events the page keeps one by one, before the first is added."""
        self._holdings.capacity = room

    @property
    def kept(self) -> int:
        """Returns how many events are kept one by one."""
        return self._holdings.total

    def list_events(self) -> list[Event]:
        return [event for events in self._events.values() for event in events]

    def is_short(self, tenant: str) -> bool:
        """Returns whether events of this tenant are only counted from now on: the first that lacked room was."""
        return tenant in self._counted

    def add(self, event: Event) -> None:
        tenant, holdings = event.tenant, self._holdings
        if tenant in self._counted:
            self._counted[tenant][event.kind] += 1
            return
        if holdings.is_full:
            loser = holdings.ask(tenant).evicted
            if loser is None:
                self.count(tenant, event.kind)
                return
            self._take_from(loser)
        holdings.add(tenant)
        self._events.setdefault(tenant, []).append(event)

    def _take_from(self, tenant: str) -> None:
        events = self._events[tenant]
        self.count(tenant, events.pop().kind)
        if not events:
            del self._events[tenant]
        self._holdings.remove(tenant)

    def count(self, tenant: str, kind: str, number: int = 1) -> None:
        """Counts events that are not kept."""
        counted = self._counted.get(tenant)
        if counted is None:
            if len(self._counted) >= MOST_COUNTED_TENANTS:
                self._is_every_tenant_short = True
                return
            counted = self._counted[tenant] = Counter()
        counted[kind] += number

    def rows(self, now: int) -> tuple[EventRow, ...]:
        """Returns the rows of the page. The counts come last: what is omitted happened after what is kept."""
        tenants = {**self._events, **self._counted}
        rows = [_row(tenant, self._stored(tenant, now)) for tenant in tenants]
        return (*rows, _row(EVERY_TENANT, ())) if self._is_every_tenant_short else tuple(rows)

    def _stored(self, tenant: str, now: int) -> Iterable[StoredEvent]:
        for event in self._events.get(tenant, ()):
            yield StoredEvent(event.kind, event.at, event.data, event.owner)
        if counted := self._counted.get(tenant):
            yield StoredEvent(OMITTED, now, {"count": counted.total(), "kinds": dict(counted)})


_encode = msgspec.json.Encoder().encode


def _row(tenant: str, events: Iterable[StoredEvent]) -> EventRow:
    text = _encode(list(events))
    return EventRow(tenant, len(text), text.decode())


class Allowance:
    """How many events a node may write one by one now: a token bucket, so that the log stays within its bytes."""

    def __init__(self, monotonic: float) -> None:
        self._tokens = float(BURST_EVENTS)
        self._as_of = monotonic

    def room(self, monotonic: float) -> int:
        """Returns the room of a new page: never so little that tenants with few events have no share of it."""
        passed = max(0.0, monotonic - self._as_of)
        self._tokens, self._as_of = min(BURST_EVENTS, self._tokens + passed * SUSTAINED_EVENTS), monotonic
        return int(min(PAGE_EVENTS, max(self._tokens, LEAST_EVENTS)))

    def take(self, events: int) -> None:
        self._tokens -= events


# Positions in the log: the id of the last event that a follower has.


def id_of(number: int, place: int) -> int:
    return number * PLACES + place


def end_of(number: int) -> int:
    """Returns the position after all events of a page; of page 0, the position in a log that has no page yet."""
    return id_of(number, PLACES - 1)


def number_of(position: int) -> int:
    """Returns the number of the page in which the position is."""
    return position // PLACES


def first_unread(position: int) -> int:
    """Returns the number of the first page that may have events after the position."""
    return (position + 1) // PLACES


def is_lost(position: int, pages: EventPages) -> bool:
    """Returns whether events after the position may have been removed, or are not known here.

    Position 0 is before the oldest event that is kept. A position after the last page is of another database, or of
    this one before it was restored from a backup.
    """
    if position == 0:
        return False
    number = number_of(position)
    is_of_earlier_version = number < FIRST_NUMBER and position != end_of(0)
    return is_of_earlier_version or first_unread(position) <= pages.pruned or number > pages.head


def after_loss(position: int, pages: EventPages) -> int:
    """Returns the position at which a follower goes on whose position is lost: before all events that it may lack."""
    return end_of(pages.head if number_of(position) > pages.head else pages.pruned)


def with_ids(row: LoggedEvents) -> list[Event]:
    number, tenant = row.number, row.tenant
    return [
        Event(event.kind, event.at, tenant, event.data, event.owner, id_of(number, place))
        for place, event in enumerate(row.events)
    ]


def pages_of(rows: Iterable[LoggedEvents]) -> list[tuple[int, list[Event | None]]]:
    """Returns the pages of one tenant, by number. None: events were omitted, and their number is not known."""
    pages: dict[int, list[Event | None]] = {}
    for row in sorted(rows, key=lambda row: (row.number, row.tenant == EVERY_TENANT)):
        pages.setdefault(row.number, []).extend([None] if row.tenant == EVERY_TENANT else with_ids(row))
    return list(pages.items())
