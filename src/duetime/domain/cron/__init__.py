"""Cron: what an expression says, when it is due next, and what it means in words. Pure: no clock, no random source.

    expr = parse("30 2 * * MON-FRI", seed=job_id)      InvalidSchedule says which field is wrong
    check_fires(expr)                                  InvalidSchedule if no year has such a day
    next_after(expr, "Europe/Berlin", now_ms, dst)     strictly later, or None
    load_zone("Europe/Berlin")                         InvalidSchedule with the nearest known name
    describe(expr)                                     "at 02:30, Monday to Friday"

**Fields.** Five (minute, hour, day-of-month, month, day-of-week) or six, with seconds first. Names in any
case, lists, ranges, steps; `5/15` runs from 5 to the field's end. Ranges run forward, but in day-of-week
they may pass Sunday: FRI-MON. In day-of-week 0 and 7 are Sunday. Day-of-month also knows `L` (the last day),
`L-3` (three days before it), `LW` (the last Monday-to-Friday day) and `15W` (the Monday-to-Friday day
nearest the 15th, in the same month; `31W` sits out a month of 30 days). Day-of-week also knows `5L` (the
last Friday) and `5#3` (the third). `?` is `*` in the two day fields. `H` is a number that depends on the
seed and the field: many jobs spread out, and each keeps its place. `H/15` spreads where steps of 15 begin,
`H(0-29)` stays within a range, and in day-of-month a bare H stays within 1 to 28.

**The two day fields.** If both are restricted, a day that matches either will do. A field that begins with a
star counts as unrestricted even if it isn't (`*/2`), and then both must match. That is Debian's rule.

**When clocks change.** It depends on how the hour and minute fields are written, as in Debian's cron.
Seconds have no say.

- *Wildcard*: hour or minute begins with a star. The job is due whenever the clock on the wall matches. `*/5
  * * * *` is due each 5 real minutes through either change; `*/30 2 * * *` is not due on the day without a 2
  o'clock and four times on the day with two of them. The policy does not touch it.
- *Fixed*: neither does, such as `30 2 * * *`, `0 1-5 * * *`, `H H * * *` or, with seconds, `15 30 2 * * *`.
  A local time that the clock jumps over: `gap` *shift* makes it due at the first whole minute after the gap,
  once, however many of its times were jumped over; *skip* leaves it out. A local time that comes twice:
  `overlap` *first* or *last* takes that one, *both* takes the two. The default, shift and first, is what
  Debian's cron does: due once on either day.

**Against cronsim and Debian's cron**, where they differ:

- Six fields: Debian has none, and cronsim treats all of them as wildcards. Here a leading `0` changes
  nothing: `0 30 2 * * *` is `30 2 * * *`, or the policy of a job would be ignored without a word.
- A gap of more than three hours (Samoa had no 30 December 2011): Debian drops what was due in it; cronsim
  shifts it, and so do we, since nothing is to be lost silently.
- For wildcard jobs cronsim ticks in hours and restarts a day at a midnight that may not exist. So it passes
  over 02:00 when Lord Howe Island sets back by 30 minutes, over 01:00 where Santiago has no midnight, and never
  ends where Newfoundland set back across midnight. Debian looks at the clock on the wall; so do we.
- `5-5/2` is 5 alone in Debian and here; cronsim reads it as `5/2`. `L/2` is refused here; cronsim drops the
  step.
- Asked in the second pass of an overlap, cronsim may answer with an instant of the first pass, which is over.

**Bounds.** 512 characters of text; instants before the year 9000; 50 years ahead, while the rarest day that
exists (29 February on a given weekday) comes within 40. The search steps by month, never by minute.
"""

from __future__ import annotations

from .describe import describe
from .expression import CronExpression, check_fires, never_fires, parse
from .search import next_after
from .zone import is_zone, load_zone

__all__ = [
    "CronExpression", "check_fires", "describe", "is_zone", "load_zone", "never_fires", "next_after", "parse",
]  # fmt: skip
