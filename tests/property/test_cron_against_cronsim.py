"""Our instants against cronsim's, over all zones. The engine's docstring lists where cronsim leaves Debian's cron."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given
from hypothesis import strategies as st

from duetime.domain.cron import never_fires, next_after, parse
from duetime.domain.job import Dst
from property import cron_samples as samples
from property.examples import examples

HOUR = 3_600_000
COUNT = 20


class Stuck(Exception):
    pass


class Simulation(CronSim):
    """cronsim, stopped where it would run without end: in an overlap that crosses midnight."""

    ticks = 0

    def tick(self, seconds: int = 1) -> None:
        self.ticks += 1
        if self.ticks > 20_000:
            raise Stuck
        super().tick(seconds)


def ours(text: str, key: str, after: int) -> list[int]:
    expr, found = parse(text), []
    while len(found) < COUNT:
        at = next_after(expr, key, after, Dst())
        if at is None:
            break
        assert at > after
        found.append(at)
        after = at
    return found


def theirs(simulation: CronSim) -> list[int]:
    found = []
    for at in simulation:
        found.append(round(at.astimezone(UTC).timestamp()) * 1000)
        if len(found) == COUNT:
            break
    return found


def start(key: str, after: int) -> datetime:
    return datetime.fromtimestamp(after // 1000, ZoneInfo(key))


def simulate(text: str, at: datetime) -> CronSim | None:
    """Returns None if cronsim finds that the day never comes; then our search must agree."""
    try:
        return Simulation(text, at)
    except CronSimError:
        assert never_fires(parse(text))
        return None


def is_fixed(text: str) -> bool:
    minute, hour = text.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def wall_clock_matches(simulation: CronSim, key: str, at: int) -> bool:
    """Returns whether the local time matches now, which is the rule of Debian's cron for a wildcard job."""
    local = datetime.fromtimestamp(at // 1000, ZoneInfo(key))
    return (
        local.second in simulation.seconds
        and local.minute in simulation.minutes
        and local.hour in simulation.hours
        and local.month in simulation.months
        and simulation.match_day(local.date())
    )


def near_a_clock_change(key: str, at: int) -> bool:
    year = datetime.fromtimestamp(at // 1000, UTC).year
    changes = [at for y in (year - 1, year, year + 1) for at in samples.clock_changes(key, y)]
    return any(abs(change * 1000 - at) < 48 * HOUR for change in changes)


def check_wildcard(text: str, key: str, after: int) -> bool:
    """Compares instant by instant; if they differ, the wall clock must prove cronsim wrong. True if they agree."""
    expr, agreed = parse(text), True
    for _ in range(COUNT):
        simulation = simulate(text, start(key, after))
        if simulation is None:
            return agreed
        try:
            their = round(next(simulation).astimezone(UTC).timestamp()) * 1000
        except StopIteration:
            assert never_fires(expr)
            return agreed
        except Stuck:
            their = None
        our = next_after(expr, key, after, Dst())
        assert our is not None
        assert wall_clock_matches(simulation, key, our)
        if our != their:
            agreed = False
            # Its instant is earlier only if the clock never showed it, and later only if it missed ours.
            assert their is None or their > our or their <= after or not wall_clock_matches(simulation, key, their)
            assert near_a_clock_change(key, our)
        after = our
    return agreed


@examples(250, 900)
@given(samples.expressions(), samples.places_and_times())
def test_five_fields_agree_with_cronsim_in_every_zone(text: str, place: tuple[str, int]) -> None:
    key, after = place
    if not is_fixed(text):
        check_wildcard(text, key, after)
        return
    at = start(key, after)
    assume(at.fold == 0)  # in the second pass cronsim returns the first, which has passed
    simulation = simulate(text, at)
    if simulation is not None:
        assert ours(text, key, after) == theirs(simulation)


@examples(200, 500)
@given(samples.minutes, samples.hours, samples.weekdays, samples.places_and_times())
def test_fixed_times_agree_with_cronsim_through_clock_changes(
    minute: str, hour: str, weekday: str, place: tuple[str, int]
) -> None:
    text = f"{minute.replace('*', '0')} {hour.replace('*', '0')} * * {weekday}"
    key, after = place
    at = start(key, after)
    assume(at.fold == 0)
    assert ours(text, key, after) == theirs(CronSim(text, at))


@examples(100, 400)
@given(samples.seconds, samples.expressions(), samples.places_and_times())
def test_six_fields_with_a_star_agree_with_cronsim(second: str, text: str, place: tuple[str, int]) -> None:
    assume(not is_fixed(text))
    check_wildcard(f"{second} {text}", *place)


@examples(80, 300)
@given(samples.seconds, samples.expressions(), samples.places_and_times())
def test_six_fields_agree_with_cronsim_in_utc(second: str, text: str, place: tuple[str, int]) -> None:
    text = f"{second} {text}"
    after = place[1]
    simulation = simulate(text, datetime.fromtimestamp(after // 1000, UTC))
    if simulation is not None:
        assert ours(text, "UTC", after) == theirs(simulation)


@examples(40, 200)
@given(st.integers(0, 59), st.integers(0, 23), samples.places_and_times())
def test_a_leading_zero_for_seconds_changes_nothing(minute: int, hour: int, place: tuple[str, int]) -> None:
    text = f"{minute} {hour} * * *"
    assert ours(f"0 {text}", *place) == ours(text, *place)


@pytest.mark.parametrize("key", samples.ODD_ZONES)
@pytest.mark.parametrize("text", ["*/5 * * * *", "*/30 * * * *", "0 * * * *"])
def test_hourly_jobs_agree_with_cronsim_everywhere(text: str, key: str) -> None:
    for change in samples.clock_changes(key, 2011) + samples.clock_changes(key, 2024):
        assert check_wildcard(text, key, (change - 3600) * 1000)


def test_a_search_ends_where_newfoundland_set_back_across_midnight_and_cronsim_does_not() -> None:
    after = int(datetime(2005, 10, 30, 0, 45, tzinfo=UTC).timestamp()) * 1000
    simulation = Simulation("15 */2 * * *", start("America/St_Johns", after))
    with pytest.raises(Stuck):
        list(islice(simulation, 3))
    found = ours("15 */2 * * *", "America/St_Johns", after)
    local = [datetime.fromtimestamp(at // 1000, ZoneInfo("America/St_Johns")) for at in found[:4]]
    assert [f"{at:%d %H:%M}" for at in local] == ["30 00:15", "30 02:15", "30 04:15", "30 06:15"]


def test_two_o_clock_is_found_when_lord_howe_sets_back_by_half_an_hour_and_cronsim_skips_it() -> None:
    key, after = "Australia/Lord_Howe", int(datetime(2024, 4, 6, 14, 40, tzinfo=UTC).timestamp()) * 1000
    simulation = Simulation("*/5 2 * * *", start(key, after))
    assert f"{next(simulation):%d %H:%M}" == "07 02:30"
    first = datetime.fromtimestamp(ours("*/5 2 * * *", key, after)[0] // 1000, ZoneInfo(key))
    assert f"{first:%d %H:%M}" == "07 02:00"
