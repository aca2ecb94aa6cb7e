"""Cron: parses expressions, finds their next instants and describes them in words. Pure: no clock, no random source.

    expr = parse("30 2 * * MON-FRI", seed=job_id)      InvalidSchedule names the invalid field
    check_fires(expr)                                  InvalidSchedule if no year has such a day
    next_after(expr, "Europe/Berlin", now_ms, dst)     strictly later, or None
    load_zone("Europe/Berlin")                         InvalidSchedule with the nearest known name
    describe(expr)                                     "at 02:30, Monday to Friday"

**Fields.** Five (minute, hour, day-of-month, month, day-of-week) or six, with seconds first. Names in any
case, lists, ranges, steps; `5/15` runs from 5 to the field's end. Ranges run forward, but in day-of-week
they may pass Sunday: FRI-MON. In day-of-week 0 and 7 are Sunday. Day-of-month also knows `L` (the last day),
`L-3` (three days before it), `LW` (the last Monday-to-Friday day) and `15W` (the Monday-to-Friday day
nearest the 15th, in the same month; `31W` matches no day of a month with 30 days). Day-of-week also knows `5L`
(the last Friday) and `5#3` (the third). `?` is `*` in the two day fields. `H` is a number that depends on the
seed and the field: it spreads many jobs, and each job keeps its number. `H/15` spreads the beginning of steps of
15, `H(0-29)` stays within a range, and in day-of-month a bare H stays within 1 to 28.

**The two day fields.** If both are restricted, a day must match one of them. A field that begins with a star
counts as unrestricted even if it is not (`*/2`); then a day must match both. That is Debian's rule.

**When clocks change.** The rule depends on how the hour and minute fields are written, as in Debian's cron. The
seconds field does not matter.

- *Wildcard*: hour or minute begins with a star. The job is due whenever the local time matches. `*/5 * * * *` is
  due each 5 real minutes through either change; `*/30 2 * * *` is not due on the day without a 2 o'clock, and four
  times on the day with two of them. The policy does not apply.
- *Fixed*: neither begins with a star, such as `30 2 * * *`, `0 1-5 * * *`, `H H * * *` or, with seconds,
  `15 30 2 * * *`. For a local time that does not exist, `gap` *shift* makes the job due once at the first whole
  minute after the gap, however many of its times are in the gap; *skip* leaves them out. For a local time that
  exists twice, `overlap` *first* or *last* takes one of them, and *both* takes the two. The default, shift and
  first, is the rule of Debian's cron: due once on either day.

**Against cronsim and Debian's cron**, where they differ:

- Six fields: Debian has none, and cronsim treats all of them as wildcards. Here `0 30 2 * * *` is the same as
  `30 2 * * *`: otherwise a job's policy would be ignored silently.
- A gap of more than three hours (Samoa had no 30 December 2011): Debian drops the instants in it; cronsim shifts
  them, and so does Duetime, because no instant may be lost silently.
- For wildcard jobs cronsim steps in hours and restarts a day at a midnight that may not exist. So it skips 02:00
  when Lord Howe Island sets clocks back by 30 minutes, skips 01:00 where Santiago has no midnight, and never ends
  where Newfoundland set clocks back across midnight. Debian uses the local time; so does Duetime.
- `5-5/2` is 5 alone in Debian and here; cronsim reads it as `5/2`. `L/2` is refused here; cronsim drops the
  step.
- In the second pass of an overlap, cronsim may return an instant of the first pass, which has passed.

**Bounds.** 512 characters of text; instants before the year 9000; 50 years ahead, while the rarest day that
exists (29 February on a given weekday) comes within 40 years. The search steps by month, never by minute.
"""

from __future__ import annotations

from .describe import describe
from .expression import CronExpression, check_fires, never_fires, parse
from .search import next_after
from .zone import is_zone, load_zone

__all__ = [
    "CronExpression", "check_fires", "describe", "is_zone", "load_zone", "never_fires", "next_after", "parse",
]  # fmt: skip
