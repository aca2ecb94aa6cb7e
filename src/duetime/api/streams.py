"""Places for clients that follow events or logs: shared by tenant, and within a tenant by user.

When all places are taken, a tenant (or user) that holds fewer than the one with the most gets the place of that one's
newest stream. That stream ends with a time after which to reconnect; its client resumes where it was, or is refused.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from duetime.domain.errors import Overloaded
from duetime.domain.identity import Caller
from duetime.domain.shares import Holdings

MOST_FOLLOWERS = 100  # each holds a connection and up to a thousand events
COME_BACK_SECONDS = 10
FAREWELL = b": other clients need this place; reconnect later\nretry: %d\n\n" % (COME_BACK_SECONDS * 1000)


class StreamEnded(Exception):
    """The node stops, or another stream got the place of this one."""


class Place:
    """The place of one stream.

    `woken` is set when the stream may have something to do. It has ended if `is_over`: another stream got its place.
    """

    def __init__(self, caller: Caller) -> None:
        self.tenant = caller.tenant
        self.user_id = caller.user_id
        self.is_over = False
        self.woken = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """Waits up to `seconds` until the stream is woken. Returns whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        return self.woken.is_set()


class Streams:
    """The places of one event loop."""

    def __init__(self, capacity: int = MOST_FOLLOWERS) -> None:
        self._tenants = Holdings(capacity)
        self._users: dict[str, Holdings] = {}  # by tenant
        self._places: dict[tuple[str, str], dict[Place, None]] = {}

    def __len__(self) -> int:
        return self._tenants.total

    @property
    def capacity(self) -> int:
        return self._tenants.capacity

    def check(self, caller: Caller) -> None:
        """Raises Overloaded if `enter` would return None now."""
        admitted, _ = self._ask(caller)
        if not admitted:
            raise Overloaded(
                f"all {self._tenants.capacity} streams are taken, and yours have their share of them: "
                "end one of them, or try again later",
                retry_after=COME_BACK_SECONDS,
            )

    def enter(self, caller: Caller) -> Place | None:
        """Returns a place; None if all are taken and the caller has its share. Call `leave` when the stream ends."""
        admitted, evicted = self._ask(caller)
        if not admitted:
            return None
        if evicted is not None:
            self._evict(evicted)
        place = Place(caller)
        self._tenants.add(place.tenant)
        self._users.setdefault(place.tenant, Holdings(0)).add(place.user_id)  # capacity 0: users only swap places
        self._places.setdefault((place.tenant, place.user_id), {})[place] = None
        return place

    def leave(self, place: Place) -> None:
        """Frees the place. It may be called more than once."""
        places = self._places.get((place.tenant, place.user_id), {})
        if place not in places:
            return
        del places[place]
        if not places:
            del self._places[place.tenant, place.user_id]
        self._tenants.remove(place.tenant)
        users = self._users[place.tenant]
        users.remove(place.user_id)
        if not users:
            del self._users[place.tenant]

    def _ask(self, caller: Caller) -> tuple[bool, tuple[str, str] | None]:
        """Returns whether the caller gets a place, and the tenant and user that lose a stream for it."""
        admission = self._tenants.ask(caller.tenant)
        if admission.evicted is not None:
            return True, (admission.evicted, self._users[admission.evicted].largest())
        if admission.admitted:
            return True, None
        users = self._users.get(caller.tenant)
        within = None if users is None else users.ask(caller.user_id).evicted
        return within is not None, None if within is None else (caller.tenant, within)

    def _evict(self, holder: tuple[str, str]) -> None:
        newest = next(reversed(self._places[holder]))
        self.leave(newest)
        newest.is_over = True
        newest.woken.set()
