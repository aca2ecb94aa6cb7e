"""Jobs on demand: their due instant, the fields that they must not have, and the effect of changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain import authoring
from duetime.domain.errors import InvalidRequest
from duetime.domain.instants import DAY, HOUR, LATEST, MINUTE, SECOND
from duetime.domain.job import CatchUp, Dst, JobSpec, JobStatus, Webhooks
from duetime.domain.plan import GRACE, DueTimer, FirePlan, Skipped, plan, plan_ahead
from duetime.domain.preview import preview
from duetime.domain.schedule import OnDemand, first_due, timetable
from duetime.domain.states import Trigger
from duetime.domain.validation import check_spec
from duetime.domain.why import explain
from samples import NOW, TENANT, new_id, spec

JOB = new_id()
LATER = NOW + HOUR


def timer_of(job: JobSpec, due_at: int = NOW, fired: int = 0) -> DueTimer:
    return DueTimer(JOB, TENANT, due_at, 1, fired, True, NOW - DAY, job)


def decide(job: JobSpec, now: int, **fields: int) -> FirePlan:
    return plan([timer_of(job, **fields)], now, 0)


def refusal(**fields: Any) -> list[str]:
    with pytest.raises(InvalidRequest) as refused:
        check_spec(spec("on_demand", **fields))
    return [error.pointer for error in refused.value.errors]


# Due instants


@pytest.mark.parametrize("text", ["on_demand", "ON_DEMAND", " on_demand "])
def test_the_due_instant_of_a_job_on_demand_is_the_end_of_time(text: str):
    assert first_due(spec(text), JOB, NOW) == (LATEST, True)
    table = timetable(spec(text), JOB, NOW)
    assert isinstance(table.schedule, OnDemand)
    assert table.next_after(LATEST) is None


def test_a_requested_instant_runs_and_the_job_waits_again():
    page = decide(spec("on_demand"), NOW + 5)
    assert [(execution.scheduled_at, execution.trigger) for execution in page.executions] == [(NOW, Trigger.AFTER)]
    assert [(move.next_due_at, move.executions) for move in page.moves] == [(LATEST, 1)]
    assert page.skips == []


@given(
    late=st.integers(0, 10 * DAY), policy=st.sampled_from(["all", "latest", "skip"]),
    window=st.integers(0, 5 * DAY // SECOND), most=st.integers(1, 5),
)  # fmt: skip
def test_a_late_instant_is_decided_once(late: int, policy: Any, window: int, most: int):
    page = decide(spec("on_demand", catch_up=CatchUp(policy, window, most)), NOW + late)
    is_in_time = late <= GRACE or (policy != "skip" and late <= window * SECOND)
    assert [execution.scheduled_at for execution in page.executions] == [NOW] * is_in_time
    if is_in_time:
        assert page.executions[0].trigger == (Trigger.AFTER if late <= GRACE else Trigger.CATCH_UP)
        assert page.skips == []
    else:
        assert page.skips == [Skipped(JOB, TENANT, NOW, NOW + late + 1, 1, "missed")]
    assert page.moves[0].next_due_at == LATEST


def test_a_plan_made_ahead_equals_the_plan_at_the_instant():
    ahead = plan_ahead([timer_of(spec("on_demand"))], 0)
    assert ahead is not None
    assert ahead.page == decide(spec("on_demand"), NOW)


def test_runs_are_counted_up_to_max_runs():
    job = spec("on_demand", max_runs=3)
    assert decide(job, NOW, fired=1).moves[0].next_due_at == LATEST
    last = decide(job, NOW, fired=2).moves[0]
    assert (last.next_due_at, last.or_due_at, last.executions) == (None, LATEST, 1)


# Refusals


@pytest.mark.parametrize(
    "fields", [{"start_at": "2027-01-01T00:00:00Z"}, {"end_at": "2027-01-01T00:00:00Z"}, {"jitter_seconds": 5}]
)
def test_fields_about_times_are_refused(fields: dict[str, Any]):
    assert refusal(**fields) == [f"/{next(iter(fields))}"]


def test_only_a_job_on_demand_may_have_predecessors():
    with pytest.raises(InvalidRequest, match=r"/schedule: .*on_demand"):
        check_spec(spec("every 1m", after=("a",)))
    check_spec(spec("on_demand", after=("a",)))


def test_a_job_has_each_predecessor_once():
    assert refusal(key="a", after=("a",)) == ["/after"]
    assert refusal(after=("a", "a")) == ["/after"]


@pytest.mark.parametrize("url", ["ftp://x.example", "no url", "http://u:p@x.example/"])
@pytest.mark.parametrize("field", ["on_success", "on_failure"])
def test_a_webhook_must_have_a_valid_url(field: str, url: str):
    assert refusal(webhooks=Webhooks(**{field: url})) == [f"/webhooks/{field}"]


# Changes


def changed(old: JobSpec, new: JobSpec, due_at: int | None, status: JobStatus = JobStatus.PENDING) -> Any:
    return authoring.change_job(JOB, TENANT, 1, NOW, status, old, new, due_at, 0, LATER)


def test_a_job_with_a_timetable_can_become_on_demand():
    overdue = LATER - 2 * MINUTE
    command = changed(spec("every 1m"), spec("on_demand"), overdue)
    assert (command.replan, command.due_at, command.recurs, command.restart) == (True, LATEST, True, True)
    assert command.skipped == (Skipped(JOB, TENANT, overdue, LATER + 1, 3, "changed"),)


def test_a_job_on_demand_can_get_a_timetable():
    command = changed(spec("on_demand"), spec("every 1m"), LATEST)
    assert (command.replan, command.due_at, command.skipped) == (True, LATER + MINUTE, ())


def test_a_due_start_that_a_change_removes_is_in_the_ledger():
    command = changed(spec("on_demand", after=("a",)), spec("every 1h"), LATER - 5)
    assert command.skipped == (Skipped(JOB, TENANT, LATER - 5, LATER + 1, 1, "changed"),)


def test_other_predecessors_do_not_change_the_due_instant():
    command = changed(spec("on_demand", after=("a",)), spec("on_demand", after=("b",)), LATEST)
    assert (command.replan, command.due_at) == (False, LATEST)


def test_a_pause_and_a_resume_do_not_change_the_due_instant():
    resumed = authoring.resume_job(JOB, TENANT, 1, NOW, spec("on_demand"), LATEST, LATER)
    assert (resumed.due_at, resumed.skipped) == (LATEST, None)
    due = authoring.resume_job(JOB, TENANT, 1, NOW, spec("on_demand"), NOW + 5, LATER)
    assert (due.due_at, due.skipped) == (LATEST, Skipped(JOB, TENANT, NOW + 5, LATER + 1, 1, "paused"))


# Descriptions


def test_a_preview_reports_that_there_are_no_instants():
    seen = preview(" On_Demand", "UTC", Dst(), NOW, 5)
    assert (seen.description, list(seen.instants)) == ("on demand only", [])
    assert "no times of its own" in seen.warnings[0]


def test_why_names_the_predecessors():
    def said(job: JobSpec) -> str:
        return explain(JobStatus.PENDING, LATEST, None, None, None, job, (), NOW)[0]

    assert said(spec("on_demand")) == "It will run when it is requested."
    assert said(spec("on_demand", after=("a",))) == "It will run when 'a' has ended (on: success)."
    both = said(spec("on_demand", after=("a", "b"), on="any"))
    assert both == "It will run when 'a', 'b' have ended (on: any)."
