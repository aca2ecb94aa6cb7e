"""The live view without a terminal: what keys change, how figures are made of responses, and how frames are drawn."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console

from duetime.cli.live.figures import alerts_of, nodes_of, rates_of, spread_of, stages_of, targets_of, tenants_of
from duetime.cli.live.panes import alerts_pane, draw, once
from duetime.cli.live.terminal import split_keys
from duetime.cli.live.view import LONGEST_FILTER, MOST_OF_TENANT, SORTS, View, press, shown_jobs


def job(name: str, failures: int = 0, lateness_ms: int = 0, tenant: str = "acme") -> dict[str, Any]:
    return {
        "job_id": f"id of {name}", "name": name, "tenant": tenant, "type": "script", "failures": failures,
        "lateness_ms": lateness_ms, "last_error": None,
    }  # fmt: skip


JOBS = [job("b", 1, 9000), job("a", 3), job("c", 0, 20_000, "other")]
NODE = {
    "id": 1, "name": "one", "roles": ["api", "timer"], "standing": "trusted", "shards": 64, "in_flight": 3, "limit": 8,
    "queued": 5, "unwritten": 2, "loop_lag_ms": 1.5, "failing": [], "reported_at": "2026-01-01T00:00:10.000Z",
}  # fmt: skip
RATES = {"per_second": 12.5, "failure_ratio": 0.25, "lateness": {"p50_ms": 1, "p95_ms": 2, "p99_ms": None}}
WINDOWS = {"1m": RATES, "5m": RATES, "15m": RATES}
FRAME = {
    "at": "2026-01-01T00:00:00+00:00", "url": "http://x", "error": "", "rates": rates_of(WINDOWS),
    "lateness": spread_of(WINDOWS, "lateness"), "duration": {}, "stages": {"late": 7}, "nodes": nodes_of([NODE]),
    "jobs": JOBS, "targets": [], "tenants": [], "alerts": [],
}  # fmt: skip


def typed(view: View, *keys: str) -> View:
    for key in keys:
        view = press(view, key, JOBS)
    return view


def names(view: View) -> list[str]:
    return [one["name"] for one in shown_jobs(view, JOBS)]


def text(view: View, frame: dict[str, Any], width: int = 140, height: int = 50) -> str:
    console = Console(width=width, height=height, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(view, frame, width, height))
    return capture.get()


def test_s_goes_round_the_orders():
    assert [names(typed(View(), *"s" * times)) for times in range(len(SORTS) + 1)] == [
        ["a", "b", "c"], ["c", "b", "a"], ["a", "b", "c"], ["a", "b", "c"]
    ]  # fmt: skip
    assert typed(View(), *"sss").sort == SORTS[0]


def test_a_filter_looks_at_names_and_tenants_without_regard_to_case():
    assert names(typed(View(), "/", *"OTHER")) == ["c"]
    assert names(typed(View(), "/", *"other", "esc")) == ["a", "b", "c"]
    assert names(typed(View(), "/", *"otherx", "backspace", "enter")) == ["c"]


def test_a_tenant_with_many_bad_jobs_hides_nobody_elses_unless_a_filter_asks_for_it():
    flood = [job(f"flood {number:02}", 100, tenant="flood") for number in range(20)]
    shown = shown_jobs(View(), [*flood, job("alone", 1, tenant="small")])
    assert [one["name"] for one in shown] == [*(one["name"] for one in flood[:MOST_OF_TENANT]), "alone"]
    assert len(shown_jobs(View(), flood)) == len(shown_jobs(View(filter="flood"), flood)) == 20


def test_severity_and_rule_of_an_alert_are_never_shortened():
    alert = {"severity": "critical", "rule": "scheduler-stopped", "summary": "x" * 300}
    console = Console(width=60, color_system=None)
    with console.capture() as capture:
        console.print(alerts_pane([alert]))
    assert re.search(r"critical +scheduler-stopped +x+…", capture.get())


def test_a_filter_is_bounded_and_takes_no_control_characters():
    view = typed(View(), "/", *"x" * 100, "\x07", "up")
    assert view.filter == "x" * LONGEST_FILTER


def test_the_selection_stays_within_the_jobs():
    assert typed(View(), "up", "k").selected == 0
    assert typed(View(), *["down"] * 9).selected == 2
    assert typed(View(), *["down"] * 9, "/", *"a", "enter", "enter").job_id == "id of a"


def test_enter_opens_the_selected_job_and_asks_for_it_at_once():
    opened = typed(View(), "j", "enter")
    assert (opened.pane, opened.job_id, opened.asks_now) == ("job", "id of b", True)
    assert typed(opened, "esc").pane == "overview"
    assert press(View(), "enter", []) == View()


def test_ctrl_c_quits_even_while_a_filter_is_typed_and_q_does_not():
    assert typed(View(), "/", "ctrl-c").is_over
    assert not typed(View(), "/", "q").is_over
    assert typed(View(), "q").is_over


def test_keys_are_split_and_unknown_sequences_are_skipped_whole():
    assert list(split_keys("a\x1b[A\x1b[1;5Cb\x1b[3~\r\x1bOB\x7f\x03")) == [
        "a", "up", "b", "enter", "down", "backspace", "ctrl-c"
    ]  # fmt: skip
    assert list(split_keys("\x1b")) == ["esc"]


def test_stages_are_of_the_store_and_of_the_nodes():
    stats = {"late": 4, "executions": {"QUEUED": 9, "RETRYING": 1, "FAILED": 99}}
    assert stages_of(stats, [NODE, NODE]) == {
        "late": 4, "waiting": 9, "retrying": 1, "queued on nodes": 10, "running": 6, "unwritten": 4
    }  # fmt: skip
    assert stages_of(stats, []) == {"late": 4, "waiting": 9, "retrying": 1}
    assert stages_of(None, []) == {}


def test_a_node_is_silent_compared_with_the_others_and_not_with_this_clock():
    late = {**NODE, "name": "two", "reported_at": "2026-01-01T00:00:02.000Z"}
    assert [one["silent_seconds"] for one in nodes_of([NODE, late])] == [0, 8]
    assert "SILENT 8 s" in text(View(), {**FRAME, "nodes": nodes_of([NODE, late])})


def test_a_node_whose_services_fail_says_which():
    assert "failing: timer" in text(View(), {**FRAME, "nodes": nodes_of([{**NODE, "failing": ["timer"]}])})


def test_a_tenant_has_its_share_of_the_places():
    (acme,) = tenants_of([{"tenant": "acme", "running": 4, "waiting": 9}], [NODE], {"acme": WINDOWS})
    assert acme == {"tenant": "acme", "running": 4, "waiting": 9, "share": 0.5, "per_second": 12.5}
    (alone,) = tenants_of([{"tenant": "acme", "running": 4, "waiting": 9}], [], {})
    assert (alone["share"], alone["per_second"]) == (None, None)


def test_open_circuits_come_before_slow_targets_and_these_before_others_that_failed():
    circuits = [
        {"target": "http://failed", "tenant": "acme", "state": "CLOSED", "failures": 1},
        {"target": "http://open", "tenant": "evil", "state": "OPEN", "failures": 9},
    ]
    waiting = [{"target": "http://slow", "tenant": "acme", "running": 1, "waiting": 2}]
    assert [one["target"] for one in targets_of(waiting, circuits)] == ["http://open", "http://slow", "http://failed"]


def test_only_alerts_that_fire_are_shown_the_latest_first():
    alert = {
        "severity": "critical",
        "rule": "r",
        "subject": "",
        "summary": "s",
        "state": "firing",
        "since": "2026-01-01",
    }
    pending, later = {**alert, "state": "pending"}, {**alert, "rule": "later", "since": "2026-01-02"}
    assert [one["rule"] for one in alerts_of({"alerts": [alert, pending, later]})] == ["later", "r"]
    assert alerts_of(None) == []


@pytest.mark.parametrize("width", [40, 70, 100, 140, 240])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_a_frame_is_no_wider_than_the_terminal(width: int, height: int):
    many = {**FRAME, "jobs": [job(f"job {number} {'x' * 50}", number, number) for number in range(200)]}
    for view in (View(), View(pane="help"), View(pane="job", job_id="x"), View(selected=150)):
        lines = text(view, many, width, height).splitlines()
        assert max(map(len, lines)) <= width


def test_the_selected_job_is_in_view_however_far_down():
    many = {**FRAME, "jobs": [job(f"job-{number:03}", 1) for number in range(200)]}
    assert "> job-150" in text(View(selected=150), many)


def test_names_of_jobs_can_not_move_the_cursor_or_set_colours():
    frame = {**FRAME, "jobs": [job("\x1b[2Jx[bold red]y", 1)]}
    shown = text(View(), frame)
    assert "\x1b" not in shown
    assert "[bold red]y" in shown


def test_the_first_frame_is_awaited_with_a_word_and_a_failed_one_with_its_reason():
    assert "reading the first frame" in text(View(), {"error": ""})
    assert "no new frame: no Duetime at http://x" in text(View(), {"error": "no Duetime at http://x"})


def test_one_frame_selects_nothing():
    console = Console(width=140, color_system=None)
    with console.capture() as capture:
        console.print(once(FRAME, 140))
    assert ">" not in capture.get()
