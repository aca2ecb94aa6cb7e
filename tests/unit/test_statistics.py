"""Tallies of ended attempts: what they count, how pages are grouped, and how rows are merged and rolled up."""

from __future__ import annotations

from duetime.domain.commands import Fire, Fired
from duetime.domain.execution import Outcome, conclude
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import RetryPolicy, ScriptJob
from duetime.domain.payloads import Script
from duetime.domain.plan import MOST_COUNTED, NewExecution, Skipped
from duetime.domain.skips import skips_of
from duetime.domain.states import ErrorType, State, Trigger
from duetime.domain.statistics import (
    BUCKET,
    KEPT,
    MOST_WATCHED,
    OTHERS,
    Result,
    StatisticsRow,
    Tally,
    Watched,
    bucket_of,
    bucket_width,
    finest_at,
    group,
    grouped,
    in_window,
    merged,
    number_of,
    roll_up,
    watched,
    window,
)  # fmt: skip
from samples import NOW, claim_of, spec

FAILED = Outcome(ErrorType.HTTP_ERROR, http_status=404)


def result(outcome: Outcome | None = None, late: int = 5, took: int = 20, **fields: object) -> Result:
    job = fields.pop("spec", None) or spec()
    claim = claim_of(job, scheduled_at=NOW, **fields)  # type: ignore[arg-type]
    return claim, conclude(claim, outcome or Outcome(), NOW + late, NOW + late + took, 0.0)


def tally_of(*results: Result) -> Tally:
    tally = Tally()
    tally.add(results)
    return tally


def row(at: int, tally: Tally, tenant: str = "acme", span: int = BUCKET, node: int = 1, **fields: str) -> StatisticsRow:
    return StatisticsRow(span, at, tenant, fields.get("type", "http_request"), fields.get("subject", ""), node, tally)


def completed(number: int) -> Tally:
    return Tally(attempts=number, completed=number)


def test_ends_are_counted_by_state_and_error():
    retried = result(Outcome(ErrorType.CONNECTION_ERROR))
    tally = tally_of(result(), result(FAILED), retried, result(Outcome(ErrorType.CANCELLED)))
    assert retried[1].state is State.RETRYING
    assert (tally.attempts, tally.completed, tally.failed, tally.cancelled, tally.retried) == (4, 1, 1, 1, 1)
    assert tally.errors == {"http_error": 1, "connection_error": 1, "cancelled": 1}
    assert (tally.dead, tally.ended, tally.failure_ratio) == (1, 2, 0.5)


def test_a_timeout_is_a_failure():
    once = spec(retry_policy=RetryPolicy(max_retries=0))
    tally = tally_of(result(Outcome(ErrorType.TIMEOUT), spec=once))
    assert (tally.timeout, tally.failed, tally.failures) == (1, 0, 1)


def test_a_skipped_execution_is_no_attempt():
    tally = tally_of(result(Outcome(ErrorType.CIRCUIT_OPEN)))
    assert (tally.attempts, tally.skipped) == (0, {"circuit_open": 1})
    assert (tally.duration.count, tally.lateness.count) == (0, 0)


def test_lateness_is_that_of_first_attempts_and_not_of_redriven_ones():
    tally = tally_of(result(late=100), result(attempt=2), result(trigger=Trigger.RETRY))
    assert (tally.lateness.count, tally.lateness.total) == (1, 100)
    assert (tally.duration.count, tally.duration.total) == (3, 60)


def test_an_empty_tally_has_no_failures():
    assert Tally().failure_ratio == 0.0


def test_merged_tallies_have_the_sums_of_all_fields():
    one, other = tally_of(result(), result(FAILED)), tally_of(result(Outcome(ErrorType.CONNECTION_ERROR)), result())
    other.skip("overlap", 3)
    both = merged([row(0, one), row(0, other)])
    expected = tally_of(result(), result(FAILED), result(Outcome(ErrorType.CONNECTION_ERROR)), result())
    expected.skip("overlap", 3)
    assert both == expected


# Groups


def test_a_page_is_grouped_by_tenant_and_type():
    script = ScriptJob(name="s", schedule="every 1m", payload=Script(argv=("true",)))
    page = [result(), result(tenant="other"), result(spec=script), result(tenant="other"), result()]
    found = group(page, (), {})
    assert {key: len(some) for key, some in found.items()} == {
        ("acme", "http_request", ""): 2, ("other", "http_request", ""): 2, ("acme", "script", ""): 1,
    }  # fmt: skip


def test_refused_ends_are_left_out():
    page = [result(), result(execution_id="refused")]
    assert {key: len(some) for key, some in group(page, {"refused"}, {}).items()} == {("acme", "http_request", ""): 1}
    assert group(page[1:], {"refused"}, {}) == {}


def test_watched_jobs_and_tags_have_groups_of_their_own():
    page = [
        result(job_id="one"),
        result(job_id="two", spec=spec(tags={"team": "a"})),
        result(tenant="other", job_id="x"),
    ]
    watching = watched([("acme", "job:one"), ("acme", "tag:team=a"), ("acme", "tag:team=b"), ("other", "job:one")])
    found = group(page, (), watching)
    assert {key[2]: len(some) for key, some in found.items() if key[0] == "acme"} == {
        "": 2, "job:one": 1, "tag:team=a": 1,
    }  # fmt: skip
    assert [key for key in found if key[0] == "other"] == [("other", "http_request", "")]


def test_a_tenant_watches_a_bounded_number_of_subjects_the_same_on_every_node():
    names = [("acme", f"job:{n:05}") for n in range(MOST_WATCHED + 50)]
    found = watched(names)
    assert len(found["acme"].jobs) == MOST_WATCHED
    assert found == watched(reversed(names))
    assert watched([("acme", "unknown"), ("acme", "tag:x")]) == {"acme": Watched(frozenset(), frozenset())}


# Skips


def test_skips_of_a_fire_are_missed_spans_and_overlaps():
    new = [NewExecution(f"e{n}", f"j{n}", "acme", NOW, Trigger.SCHEDULE, 5, 1, "skip") for n in range(2)]
    missed = Skipped("j1", "acme", 0, 9, 3, "missed")
    stale = Skipped("j9", "acme", 0, 9, 3, "missed")
    command = Fire(1, NOW, True, (), tuple(new), (missed, stale))
    found = skips_of(command, Fired(frozenset({"j9"}), frozenset({"e0", "e1"}), (), frozenset({"e0"})))
    assert found == [missed, Skipped("j0", "acme", NOW, NOW + 1, 1, "overlap")]
    assert [number_of(skip) for skip in (missed, Skipped("j", "t", 0, 9, None, "missed"))] == [3, MOST_COUNTED]


# Rolling up


def test_rows_of_a_bucket_become_one_row_a_key():
    rows = [row(0, completed(1)), row(BUCKET, completed(2), node=2), row(50_000, completed(4), tenant="other")]
    existing = [row(0, completed(8), span=MINUTE, node=0)]
    found = {one.key: one for one in roll_up(rows, existing, MINUTE, 10)}
    assert found["acme", "http_request", ""] == row(0, completed(11), span=MINUTE, node=0)
    assert found["other", "http_request", ""] == row(0, completed(4), "other", span=MINUTE, node=0)


def test_tenants_beyond_the_room_are_summed_and_their_subjects_dropped():
    rows = [row(0, completed(1), f"t{n}") for n in range(4)] + [row(0, completed(1), "t9", subject="job:x")]
    found = {one.key: one.tally.completed for one in roll_up(rows, [], MINUTE, 2)}
    assert found == {("t0", "http_request", ""): 1, ("t1", "http_request", ""): 1, (OTHERS, "http_request", ""): 2}


# Windows and buckets


def test_a_window_ends_where_all_nodes_have_written():
    assert window(100 * MINUTE + 11_999, MINUTE) == (99 * MINUTE, 100 * MINUTE)
    assert window(100 * MINUTE + 12_000, MINUTE) == (99 * MINUTE + BUCKET, 100 * MINUTE + BUCKET)


def test_a_window_of_minutes_begins_at_a_minute():
    found = window(100 * MINUTE + 32_000, 5 * MINUTE)
    assert found == (95 * MINUTE, 100 * MINUTE + 30 * SECOND)
    assert found.seconds == 330
    rows = [row(95 * MINUTE - BUCKET, completed(1)), row(95 * MINUTE, completed(2)), row(found.until, completed(4))]
    assert merged(in_window(rows, found)).completed == 2


def test_figures_are_summed_by_tenant_and_type():
    rows = [row(0, completed(1)), row(0, completed(2), "other"), row(BUCKET, completed(4), type="script")]
    assert {name: tally.completed for name, tally in grouped(rows, "tenant").items()} == {"acme": 5, "other": 2}
    assert {name: tally.completed for name, tally in grouped(rows, "type").items()} == {"http_request": 3, "script": 4}


def test_buckets_are_as_long_as_the_rows_must_be():
    now = 1000 * DAY
    assert finest_at(now - MINUTE, now) == BUCKET
    assert finest_at(now - HOUR, now) == MINUTE
    assert finest_at(now - DAY, now) == HOUR
    assert bucket_width(now - HOUR, now, None, MINUTE) == MINUTE
    assert bucket_width(now - HOUR, now, SECOND, MINUTE) == MINUTE
    assert bucket_width(now - HOUR, now, 90 * SECOND, MINUTE) == 2 * MINUTE
    assert bucket_width(now - 31 * DAY, now, HOUR, HOUR) == 3 * HOUR, "at most 300 buckets"


def test_rows_of_a_rate_are_kept_as_long_as_a_minute_needs_them():
    assert KEPT[BUCKET] >= 2 * MINUTE
    assert bucket_of(12_345) == 10_000
