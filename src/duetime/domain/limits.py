"""Rate limits of users: the generic cell rate algorithm (GCRA), a token bucket that needs no timer.

For each user and limit one number is stored: the instant at which the bucket is full again (`full_at`, in µs). Taking
one token moves it by `emission`; a take that would move it further ahead than the whole bucket is refused. So a user
who was idle may take the whole bucket at once, and then one token every `emission`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from duetime.domain.errors import QuotaExceeded
from duetime.domain.identity import Tier
from duetime.domain.instants import DAY, HOUR, SECOND

MICRO = 1000  # µs in a ms
NOTIFICATIONS = "notifications"
ALL_USERS = ""  # the user under which a limit of a whole tenant is stored
RESERVED_PART = 20  # a node reserves one part in so many of the remaining tokens: if few are left, no node takes most


class Limit(msgspec.Struct, frozen=True, array_like=True):
    """At most `most` in `period` ms. The limit is stored under `name`."""

    name: str
    most: int
    period: int

    @property
    def emission(self) -> int:
        return self.period * MICRO // self.most

    @property
    def bucket(self) -> int:
        return self.emission * self.most


LimitKey = tuple[str, str, str]  # tenant, user, name of the limit


class Quota(msgspec.Struct, frozen=True):
    """A limit, and the user that it applies to."""

    tenant: str
    user_id: str
    limit: Limit

    @property
    def key(self) -> LimitKey:
        return self.tenant, self.user_id, self.limit.name


class TierLimits(msgspec.Struct, frozen=True):
    """The limits of each tier. A tier that is missing has no limit. `notifications`: of a tenant of any tier."""

    requests: Mapping[Tier, Limit] = {}
    jobs: Mapping[Tier, Limit] = {}
    notifications: Limit | None = None

    @classmethod
    def of(
        cls, requests_an_hour: Mapping[Tier, int], jobs_a_day: Mapping[Tier, int], notifications_an_hour: int = 0
    ) -> TierLimits:
        """Builds the limits from numbers per hour and day. 0 means no limit."""
        return cls(
            {tier: Limit("requests", most, HOUR) for tier, most in requests_an_hour.items() if most},
            {tier: Limit("jobs", most, DAY) for tier, most in jobs_a_day.items() if most},
            Limit(NOTIFICATIONS, notifications_an_hour, HOUR) if notifications_an_hour else None,
        )


def take(limit: Limit, full_at: int, now: int, count: int) -> int | None:
    """Returns the new `full_at` (µs) after taking `count` tokens at `now` (ms), or None if too few are left."""
    moved = max(full_at, now * MICRO) + count * limit.emission
    return moved if moved - now * MICRO <= limit.bucket else None


def take_or_refuse(limit: Limit, full_at: int, now: int, count: int) -> int:
    """As `take`. Raises QuotaExceeded if too few are left."""
    moved = take(limit, full_at, now, count)
    if moved is None:
        raise QuotaExceeded(*refusal(limit, full_at, now, count))
    return moved


def remaining(limit: Limit, full_at: int, now: int) -> int:
    return max(0, (limit.bucket - max(0, full_at - now * MICRO)) // limit.emission)


def retry_after(limit: Limit, full_at: int, now: int, count: int = 1) -> int:
    """Returns the whole seconds until `count` can be taken; if the bucket never holds that many, until it is full."""
    wait = full_at + min(count, limit.most) * limit.emission - limit.bucket - now * MICRO
    return max(1, math.ceil(wait / (MICRO * SECOND)))


def reserve(limit: Limit, full_at: int, now: int, wanted: int, given_back: int) -> tuple[int, int]:
    """Returns (how many of `wanted` are taken, the new `full_at`), after returning `given_back` unused tokens."""
    # `full_at` may be more than a bucket ahead: a clock was set back or is another node's, or the limit was larger.
    full_at = min(full_at - given_back * limit.emission, now * MICRO + limit.bucket)
    granted = min(wanted, remaining(limit, full_at, now))
    moved = take(limit, full_at, now, granted) if granted else None
    return granted, full_at if moved is None else moved


def reservation_size(limit: Limit, full_at: int, now: int) -> int:
    """Returns how many tokens a node reserves at once: a part of the remaining ones, and at least one."""
    return max(1, remaining(limit, full_at, now) // RESERVED_PART)


def refusal(limit: Limit, full_at: int, now: int, count: int) -> tuple[str, int]:
    """Returns the message for a user who has used up a limit, and how many seconds they have to wait."""
    wait = retry_after(limit, full_at, now, count)
    period = "a day" if limit.period == DAY else "an hour"
    what = {"jobs": "new jobs", "joins": "joins of workers"}.get(limit.name, limit.name)
    left = remaining(limit, full_at, now)
    some = f", of which {left:,} are left" if left and count > 1 else ""
    return f"you may have {limit.most:,} {what} {period}{some}; try again in {_spell(wait)}", wait


def _spell(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} seconds"
    minutes = -(-seconds // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
