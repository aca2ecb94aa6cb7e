"""How often a user may ask: the generic cell rate algorithm (GCRA), the bucket that needs no timer.

Of each user and limit one number is kept: the instant at which the bucket is full again (`full_at`, in µs). Taking one
moves it by `emission`; a take that would move it further ahead than the whole bucket is refused. So a user who has
been quiet has all at once, and then one every `emission`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from duetime.domain.identity import Tier
from duetime.domain.instants import DAY, HOUR, SECOND

MICRO = 1000  # µs in a ms
NOTIFICATIONS = "notifications"
ALL_USERS = ""  # the user that a limit of a whole tenant is kept under
SHARE = 20  # a node reserves this part of what is left, and so never much of little


class Limit(msgspec.Struct, frozen=True, array_like=True):
    """`most` in `period` ms. `name` is what it is kept under."""

    name: str
    most: int
    period: int

    @property
    def emission(self) -> int:
        return self.period * MICRO // self.most

    @property
    def bucket(self) -> int:
        return self.emission * self.most


class Quota(msgspec.Struct, frozen=True):
    """Whom a limit holds for."""

    tenant: str
    user_id: str
    limit: Limit

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tenant, self.user_id, self.limit.name


class TierLimits(msgspec.Struct, frozen=True):
    """What each tier has, by tier. One that is not there has no limit. `notifications`: of a tenant of any tier."""

    requests: Mapping[Tier, Limit] = {}
    jobs: Mapping[Tier, Limit] = {}
    notifications: Limit | None = None

    @classmethod
    def of(
        cls, requests_an_hour: Mapping[Tier, int], jobs_a_day: Mapping[Tier, int], notifications_an_hour: int = 0
    ) -> TierLimits:
        """0 is no limit."""
        return cls(
            {tier: Limit("requests", most, HOUR) for tier, most in requests_an_hour.items() if most},
            {tier: Limit("jobs", most, DAY) for tier, most in jobs_a_day.items() if most},
            Limit(NOTIFICATIONS, notifications_an_hour, HOUR) if notifications_an_hour else None,
        )


def take(limit: Limit, full_at: int, now: int, count: int) -> int | None:
    """The new `full_at` (µs) after taking `count` at `now` (ms), or None if there are not so many."""
    moved = max(full_at, now * MICRO) + count * limit.emission
    return moved if moved - now * MICRO <= limit.bucket else None


def remaining(limit: Limit, full_at: int, now: int) -> int:
    return max(0, (limit.bucket - max(0, full_at - now * MICRO)) // limit.emission)


def retry_after(limit: Limit, full_at: int, now: int, count: int = 1) -> int:
    """Whole seconds until `count` can be taken; of more than the bucket ever holds, until it is full."""
    wait = full_at + min(count, limit.most) * limit.emission - limit.bucket - now * MICRO
    return max(1, math.ceil(wait / (MICRO * SECOND)))


def reserve(limit: Limit, full_at: int, now: int, wanted: int, given_back: int) -> tuple[int, int]:
    """(how many of `wanted` are taken, the new `full_at`), after what was taken before and not used is given back."""
    # It may lie further ahead than a whole bucket: of a clock that was set back, or another node's, or a larger limit.
    full_at = min(full_at - given_back * limit.emission, now * MICRO + limit.bucket)
    granted = min(wanted, remaining(limit, full_at, now))
    moved = take(limit, full_at, now, granted) if granted else None
    return granted, full_at if moved is None else moved


def share(limit: Limit, full_at: int, now: int) -> int:
    """How many a node reserves at once for itself: a part of what is left, one when little is."""
    return max(1, remaining(limit, full_at, now) // SHARE)


def refusal(limit: Limit, full_at: int, now: int, count: int) -> tuple[str, int]:
    """The sentence for whoever has used up a limit, and how many seconds they have to wait."""
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
