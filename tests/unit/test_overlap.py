"""The overlap policies as a pure rule: from the runs of a page to the decision on each."""

from __future__ import annotations

import pytest

from duetime.domain.overlap import MOST_WAITING, NOTHING_OPEN, NotRun, Open, ids_of, settle
from duetime.domain.plan import NewExecution, TimerMove
from duetime.domain.states import Trigger

RUNNING = Open(is_open=True, waiting=0)


def siblings(if_open: str, count: int, job: str = "job") -> list[NewExecution]:
    return [
        NewExecution(f"{job}-{n}", job, "acme", n, Trigger.SCHEDULE, 5, 1, if_open, count > 1) for n in range(count)
    ]


def decided(if_open: str, count: int, found: Open) -> str:
    """A letter per run, in order: R runs, H is held, S is skipped; and X if the open execution is cancelled."""
    executions = siblings(if_open, count)
    to_run, held, skipped, replaced = settle(executions, {"job": found})
    letters = {execution: letter for letter, some in (("R", to_run), ("H", held), ("S", skipped)) for execution in some}
    assert len(letters) == len(to_run) + len(held) + len(skipped) == count, "each is decided once"
    return "".join(letters[execution] for execution in executions) + "X" * len(replaced)


@pytest.mark.parametrize(
    ("if_open", "free", "beside_an_open_one", "where_one_waits"),
    [
        ("run", "RRRRR", "RRRRR", "RRRRR"),
        ("skip", "RHHHH", "SSSSS", "SSSSS"),
        ("hold_one", "RHHHH", "HSSSS", "SSSSS"),
        ("hold", "RHHHH", "HHHHH", "HHHHH"),
        ("cancel", "SSSSR", "SSSSRX", "SSSSRX"),
    ],
)
def test_each_policy_decides_five_runs(if_open: str, free: str, beside_an_open_one: str, where_one_waits: str):
    assert decided(if_open, 5, NOTHING_OPEN) == free
    assert decided(if_open, 5, RUNNING) == beside_an_open_one
    assert decided(if_open, 5, Open(True, 1)) == where_one_waits


@pytest.mark.parametrize(
    ("if_open", "beside_an_open_one"), [("run", "R"), ("skip", "S"), ("hold_one", "H"), ("hold", "H"), ("cancel", "RX")]
)
def test_each_policy_decides_one_run(if_open: str, beside_an_open_one: str):
    assert decided(if_open, 1, NOTHING_OPEN) == "R"
    assert decided(if_open, 1, RUNNING) == beside_an_open_one


def test_at_most_a_thousand_executions_may_wait():
    assert MOST_WAITING == 1000
    assert decided("hold", 3, Open(True, MOST_WAITING - 2)) == "HHS"
    assert decided("hold", 3, Open(True, MOST_WAITING)) == "SSS"
    assert decided("hold", MOST_WAITING + 2, NOTHING_OPEN) == "R" + "H" * MOST_WAITING + "S"


def test_each_job_is_decided_separately():
    mixed = [*siblings("skip", 2, "busy"), *siblings("skip", 2, "free"), *siblings("cancel", 1, "newest")]
    to_run, held, skipped, replaced = settle(mixed, {"busy": RUNNING, "newest": RUNNING})
    assert [execution.execution_id for execution in to_run] == ["free-0", "newest-0"]
    assert [execution.execution_id for execution in held] == ["free-1"]
    assert [execution.execution_id for execution in skipped] == ["busy-0", "busy-1"]
    assert replaced == ["newest"]


def test_held_executions_count_and_skipped_or_decided_ones_do_not():
    executions = [*siblings("skip", 3, "a"), *siblings("skip", 1, "b"), *siblings("run", 1, "c")]
    moves = [TimerMove(job, 0, 1, None, 1, or_due_at) for job, or_due_at in (("a", 60), ("b", None), ("c", 90))]
    not_run = NotRun(ids_of(executions[:1]), ids_of(executions[1:2]), ids_of(executions[2:4]))
    assert not_run.ids == {"a-0", "a-1", "a-2", "b-0"}
    assert not_run.jobs(executions) == {"a", "b"}
    assert not_run.uncounted(executions, moves) == [("a", 2, 60), ("b", 1, None)]
    assert NotRun(frozenset(), ids_of(executions), frozenset()).uncounted(executions, moves) == []
