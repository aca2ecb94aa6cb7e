"""Checks for every store: from figures to ok, warning or problem, and to sentences."""

from __future__ import annotations

import pytest

from duetime.domain.doctor import (
    Status,
    due_timers,
    epochs,
    has_problem,
    how_many,
    lost_executions,
    nodes,
    not_done,
    ok,
    schema,
    shards,
    size,
    some,
    span,
    unowned,
    waiting_executions,
    waiting_functions,
    warning,
)
from duetime.domain.lease import Holding, Member, View

ALL = frozenset({"api", "timer", "worker", "alerts"})


def view(*holdings: Holding, members: tuple[Member, ...] = (Member(7, "a:8080", ALL, 4200),)) -> View:
    return View(1000, members, holdings or (Holding(7, 1),) * 4)


@pytest.mark.parametrize(
    ("found", "newest", "status", "word"),
    [
        (2, 2, Status.OK, "newest"),
        (1, 2, Status.WARNING, "this Duetime brings 2"),
        (0, 2, Status.PROBLEM, "no tables"),
        (3, 2, Status.PROBLEM, "a newer one wrote it"),
    ],
)
def test_a_schema_of_another_version_has_advice(found: int, newest: int, status: Status, word: str):
    check = schema(found, newest)
    assert check.status is status
    assert word in check.found
    assert bool(check.advice) is (status is not Status.OK)


@pytest.mark.parametrize(
    ("count", "late", "status"),
    [(0, 0, Status.OK), (3, 2000, Status.OK), (3, 2001, Status.WARNING), (3, 60_000, Status.WARNING),
     (1, 60_001, Status.PROBLEM)],
)  # fmt: skip
def test_timers_are_judged_by_the_lateness_of_the_earliest(count: int, late: int, status: Status):
    assert due_timers(count, late).status is status


@pytest.mark.parametrize(
    ("late", "status"),
    [(5000, Status.OK), (5001, Status.WARNING), (300_000, Status.WARNING), (300_001, Status.PROBLEM)],
)
def test_waiting_executions_have_more_time(late: int, status: Status):
    assert waiting_executions(2, late).status is status
    assert waiting_functions(2, late, 1).status is status


def test_the_lag_check_reports_the_number_and_the_lateness():
    assert due_timers(1, 1500).found == "1 timer is due in the past, the earliest by 1.5 s."
    assert due_timers(12_000, 7_200_000).found == "More than 10,000 timers are due in the past, the earliest by 2 h."
    assert waiting_executions(2, 900).found == "2 executions wait for a worker, the earliest for 900 ms."
    assert waiting_functions(1, 900, 0).found == "1 function waits for a worker, the earliest for 900 ms."
    missing = [f"f{number}" for number in range(9)]
    assert waiting_functions(1, 900, 3, missing[:2]).found.endswith(" for 900 ms. No worker has f0, f1.")
    assert waiting_functions(9, 900, 3, missing).found.endswith("No worker has f0, f1, f2, f3, f4, f5, f6, f7, ….")
    assert waiting_functions(0, 0, 2).found == "No function waits for a worker; 2 workers have joined."


def test_executions_of_ended_nodes_are_a_warning_until_the_reconciler_could_run_twice():
    assert lost_executions(0, None, 300).status is Status.OK
    assert lost_executions(3, None, 300).status is Status.WARNING
    assert lost_executions(3, 600_000, 300).status is Status.WARNING
    check = lost_executions(3, 600_001, 300)
    assert check.status is Status.PROBLEM
    assert "3 executions are held by nodes that have ended. The earliest ended 10 min ago." in check.found


def test_living_nodes_are_listed_with_their_roles_and_leases():
    check = nodes(view(Holding(7, 1), Holding(None, 1)))
    assert check.status is Status.OK
    assert check.found == ("1 node lives: a:8080 (id 7; alerts, api, timer, worker; 1 shards; lease ends in 3.2 s).")


def test_a_missing_node_or_required_role_is_a_problem():
    assert nodes(view(members=())).status is Status.PROBLEM
    for role, word in (("timer", "nothing falls due"), ("worker", "nothing runs")):
        check = nodes(view(members=(Member(7, "a", ALL - {role}, 4200),)))
        assert check.status is Status.PROBLEM
        assert word in check.found


def test_a_long_list_of_nodes_is_shortened():
    members = tuple(Member(number, f"n{number}", ALL, 4000) for number in range(20))
    assert nodes(view(members=members)).found.endswith(", and 12 more.")


def test_a_shard_without_a_living_owner_is_a_problem():
    assert shards(view()).status is Status.OK
    torn = view(Holding(7, 1), Holding(None, 1), Holding(6, 1), Holding(7, 2))
    assert unowned(torn) == (1, 2)
    check = shards(torn)
    assert check.status is Status.PROBLEM
    assert check.found == "2 of 4 shards have no living owner (1, 2): their jobs don't fire."


def test_equal_epochs_are_ok_also_for_a_released_shard():
    held = view(Holding(7, 3), Holding(None, 5), Holding(6, 9))
    assert epochs(held, {0: (3, 7), 1: (4, 6)}).status is Status.OK


def test_a_registry_that_is_behind_the_store_is_a_problem():
    assert epochs(view(Holding(7, 3)), {0: (4, 6)}).status is Status.PROBLEM
    check = epochs(view(Holding(7, 3)), {0: (3, 6)})  # the same epoch, given out twice
    assert check.status is Status.PROBLEM
    assert "UPDATE shards" in check.advice


def test_an_epoch_that_is_not_fenced_yet_is_a_warning():
    assert epochs(view(Holding(7, 3)), {0: (2, 6)}).status is Status.WARNING
    assert epochs(view(Holding(7, 3)), {}).status is Status.WARNING


def test_a_check_that_could_not_run_is_a_problem():
    check = not_done("history", "it took longer than 5 s")
    assert (check.check, check.status) == ("history", Status.PROBLEM)
    assert check.found == "This check could not be made: it took longer than 5 s."
    assert has_problem([ok("a", "Fine."), check])
    assert not has_problem([ok("a", "Fine."), warning("b", "Hm.", "Look.")])


def test_figures_are_shown_in_words():
    assert [span(ms) for ms in (3, 999, 1500, 119_000, 180_000, 7_200_000, 260_000_000)] == [
        "3 ms", "999 ms", "1.5 s", "119.0 s", "3 min", "2 h", "3 d",
    ]  # fmt: skip
    assert [size(count) for count in (12, 2048, 5 << 20, 3 << 30)] == ["12 bytes", "2.0 KiB", "5.0 MiB", "3.0 GiB"]
    assert some(range(3)) == "0, 1, 2"
    assert some(range(64)) == "0, 1, 2, 3, 4, 5, 6, 7, … (64 in all)"
    assert how_many(1, "row") == "1 row is"
