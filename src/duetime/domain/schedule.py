"""The schedule of a job: an instant, an interval, or cron; with start, end and jitter.

Other modules only call `Timetable.next_after`. Jitter is a fixed offset computed from the job's id, so it moves a job's
whole timetable and keeps every instant stable and unique.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import msgspec

from duetime.domain import cron
from duetime.domain.errors import InvalidRequest, InvalidSchedule
from duetime.domain.instants import DAY, HOUR, LATEST, MINUTE, SECOND, format_instant, parse_instant
from duetime.domain.job import Dst, JobSpec

PAST_TOLERANCE = MINUTE  # a one-off may lie this far in the past: clocks differ, requests travel

_EVERY = re.compile(r"every\s+(\d{1,9})\s*([a-z]+)", re.IGNORECASE)
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY),
}


class Once(msgspec.Struct, frozen=True):
    at: int

    recurs = False

    def next_after(self, after: int) -> int | None:
        return self.at if self.at > after else None

    def describe(self) -> str:
        return f"once, at {format_instant(self.at)}"


class Every(msgspec.Struct, frozen=True):
    period: int  # ms
    anchor: int  # runs fall on anchor + n * period, n >= 1

    recurs = True

    def next_after(self, after: int) -> int | None:
        return self.anchor + max(1, (after - self.anchor) // self.period + 1) * self.period

    def describe(self) -> str:
        units = ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))
        unit, name = next(pair for pair in units if self.period % pair[0] == 0)
        count = self.period // unit
        return f"every {name}" if count == 1 else f"every {count} {name}s"


class Cron(msgspec.Struct, frozen=True, eq=False):
    """Built once for each text, zone and DST policy (`_cron`), and so compared by identity, which is fast."""

    expression: cron.CronExpression
    zone: str
    dst: Dst

    recurs = True

    def next_after(self, after: int) -> int | None:
        return _next_cron(self, after)

    def describe(self) -> str:
        return cron.describe(self.expression)


class OnDemand(msgspec.Struct, frozen=True):
    """A schedule without times: the job runs on request, or when the jobs in its `after` have ended.

    Its timer is due at LATEST. An end of those jobs moves it to now; after that execution it is due at LATEST again.
    """

    recurs = True

    def next_after(self, after: int) -> int | None:
        return LATEST if after < LATEST else None

    def describe(self) -> str:
        return "on demand only"


Schedule = Once | Every | Cron | OnDemand


# Jobs that share an expression and a zone share its next instant: a page of ten thousand jobs computes it once.
@lru_cache(maxsize=65_536)
def _next_cron(schedule: Cron, after: int) -> int | None:
    return cron.next_after(schedule.expression, schedule.zone, after, schedule.dst)


@lru_cache(maxsize=4096)
def _parse_cron(text: str, seed: str) -> cron.CronExpression:
    expression = cron.parse(text, seed=seed)
    cron.check_fires(expression)
    return expression


@lru_cache(maxsize=4096)
def _cron(text: str, seed: str, zone: str, dst: Dst) -> Cron:
    cron.load_zone(zone)
    return Cron(_parse_cron(text, seed), zone, dst)


def parse_schedule(text: str, *, timezone: str, dst: Dst, seed: str, anchor: int) -> Schedule:
    """Parse a schedule as users write it. `seed` (the job's id) determines `H`; `every` starts at `anchor`.

    Raises InvalidSchedule naming the field.
    """
    text = text.strip()
    if text[4:5] == "-" and text[:4].isdigit():
        return _parse_once(text, timezone)
    lowered = text.lower()
    if lowered == "immediate":
        cron.load_zone(timezone)
        return Once(anchor)
    if lowered == "on_demand":
        cron.load_zone(timezone)
        return OnDemand()
    if lowered.startswith("every"):
        cron.load_zone(timezone)
        return _parse_every(text, anchor)
    if not text.startswith("@") and len(text.split()) == 1:
        raise InvalidSchedule.at("/schedule", f"'{text}' is no schedule; {_advice(lowered)}")
    return _cron(text, seed if "H" in text.upper() else "", timezone, dst)


def _advice(word: str) -> str:
    if word in ("now", "once", "asap"):
        return "to run once, now, write 'immediate'"
    if _EVERY.fullmatch(f"every {word}"):
        return f"did you mean 'every {word}'?"
    return "write 'immediate', an instant (2027-01-01T09:00:00Z), 'every 5m', 'on_demand', or cron (0 9 * * MON-FRI)"


@lru_cache(maxsize=4096)  # jobs that are due at one instant are often created together
def _parse_once(text: str, timezone: str) -> Once:
    zone = cron.load_zone(timezone)
    try:
        return Once(parse_instant(text, zone))
    except ValueError as error:
        raise InvalidSchedule.at("/schedule", str(error)) from None


def _parse_every(text: str, anchor: int) -> Every:
    match = _EVERY.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        examples = "'every 30s', 'every 5m', 'every 2h', 'every 1d'"
        raise InvalidSchedule.at("/schedule", f"'{text}' is not understood; write a number and a unit: {examples}")
    period = int(match[1]) * unit
    if not SECOND <= period <= 3660 * DAY:
        message = f"'{text}' is out of range; the shortest is 'every 1s', the longest ten years"
        raise InvalidSchedule.at("/schedule", message)
    return Every(period, anchor)


class Timetable(msgspec.Struct, frozen=True):
    """A schedule within its bounds: all that determines when a job is due."""

    schedule: Schedule
    start_at: int = 0
    end_at: int = LATEST
    jitter: int = 0  # ms, the job's own share

    @property
    def recurs(self) -> bool:
        return self.schedule.recurs

    def next_after(self, after: int) -> int | None:
        """Returns the first due instant strictly later than `after`; None if none is left."""
        jitter, before = self.jitter, self.start_at - 1
        after -= jitter
        at = self.schedule.next_after(after if after > before else before)
        if at is None or at > self.end_at:
            return None
        return min(at + jitter, LATEST) if jitter else at


def timetable(spec: JobSpec, job_id: str, created_at: int) -> Timetable:
    """Returns the timetable of a job. Raises InvalidSchedule naming the invalid field."""
    start_at = None if spec.start_at is None else _bound(spec.start_at, "/start_at", spec.timezone)
    anchor = created_at if start_at is None else start_at
    schedule = parse_schedule(spec.schedule, timezone=spec.timezone, dst=spec.dst, seed=job_id, anchor=anchor)
    if start_at is None and spec.end_at is None and not spec.jitter_seconds:
        return Timetable(schedule)
    end_at = LATEST if spec.end_at is None else _bound(spec.end_at, "/end_at", spec.timezone)
    return Timetable(schedule, start_at or 0, end_at, jitter_of(job_id, spec.jitter_seconds))


def _bound(text: str, pointer: str, timezone: str) -> int:
    try:
        return parse_instant(text, cron.load_zone(timezone))
    except ValueError as error:
        raise InvalidSchedule.at(pointer, str(error)) from None


def jitter_of(job_id: str, jitter_seconds: float) -> int:
    """Returns the job's own offset in [0, jitter_seconds), in ms: stable, and spread evenly over all jobs."""
    span = int(jitter_seconds * SECOND)
    return int.from_bytes(blake2b(job_id.encode(), digest_size=8).digest(), "big") % span if span else 0


def first_due(spec: JobSpec, job_id: str, now: int) -> tuple[int, bool]:
    """Returns when a new job is first due, and whether it recurs. Raises InvalidSchedule if it is never due."""
    table = timetable(spec, job_id, now)
    if isinstance(table.schedule, Once):
        at = table.schedule.at
        if at < now - PAST_TOLERANCE:
            raise InvalidSchedule.at("/schedule", f"{format_instant(at)} has passed; use 'immediate' to run now")
        due_at = table.next_after(at - 1 + table.jitter)
    else:
        due_at = table.next_after(now)
    if due_at is None:
        raise never_due(spec)
    return due_at, table.recurs


def never_due(spec: JobSpec) -> InvalidRequest:
    message = "no run falls between start_at and end_at; widen them or change the schedule"
    return InvalidSchedule.at("/end_at" if spec.end_at else "/schedule", message)
