"""`duetime top`: the live view in a terminal with keys, one frame for scripts, and what it says without a terminal."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Duetime
from cli.terminal import Terminal, program
from served import served, target


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duetime]:
    """A server of its own: jobs that fail, and one that does not."""
    with target() as target_url, served(tmp_path_factory.mktemp("top")) as url:
        duetime = Duetime(url, target_url)
        for name, runs in (("zz-bad", 3), ("aa-bad", 1)):
            made = duetime.json("job", "create", "--name", name, "--schedule", "@yearly", "--url", f"{target_url}/500",
                                "--retries", "0")  # fmt: skip
            for _ in range(runs):
                duetime.run_until(made["job_id"], "FAILED")
        good, _ = duetime.create()
        duetime.run_until(good, "COMPLETED")
        yield duetime


@pytest.fixture
def shown(loaded: Duetime, tmp_path: Path) -> Iterator[Terminal]:
    """The live view in a wide terminal, with a frame on it."""
    with program("--url", loaded.url, "top", "--interval", "0.5", folder=tmp_path) as terminal:
        terminal.wait_for("zz-bad", "aa-bad")
        yield terminal


def test_one_frame_has_the_nodes_and_the_worst_jobs_first(loaded: Duetime) -> None:
    frame = loaded.ok("top", "--once")
    assert frame.index("zz-bad") < frame.index("aa-bad")
    for words in ("in flight", "alerts firing", "targets that fail", "tenants", "http_error", "stages"):
        assert words in frame
    assert "\x1b" not in frame


def test_the_same_frame_is_there_for_machines(loaded: Duetime) -> None:
    frame = json.loads(loaded.ok("top", "--json"))
    assert [(job["name"], job["failures"]) for job in frame["jobs"]] == [("zz-bad", 3), ("aa-bad", 1)]
    (node,) = frame["nodes"]
    assert node["limit"] > 0
    assert {"rates", "lateness", "duration", "stages", "tenants", "alerts", "at", "url"} <= frame.keys()


def test_without_a_terminal_it_says_what_to_do(loaded: Duetime) -> None:
    result = loaded("top")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--once prints one frame" in result.stderr


def test_without_a_server_it_fails_as_other_commands_do(alone: Duetime) -> None:
    result = alone("top", "--once")
    assert result.exit_code == 1
    assert "no Duetime at http://127.0.0.1:9" in result.stderr


def test_frames_follow_each_other(shown: Terminal, loaded: Duetime) -> None:
    loaded.run_until("aa-bad", "FAILED")
    shown.type("r")
    shown.wait_until(lambda frame: bool(re.search(r"aa-bad +2 ", frame)), "two failures of aa-bad")


def test_s_sorts_by_the_next_column_and_the_heading_names_it(shown: Terminal) -> None:
    shown.type("s")
    shown.wait_for("by lateness", "lateness ↓")
    shown.type("s")
    frame = shown.wait_for("by name", "zz-bad", "aa-bad")
    assert frame.index("zz-bad") > frame.index("aa-bad")


def test_a_filter_leaves_what_has_its_text(shown: Terminal) -> None:
    shown.type("/aa")
    shown.wait_for("filter: aa_", "aa-bad", without=["zz-bad"])
    shown.type("\r")
    shown.wait_for("filter: aa ", without=["zz-bad", "aa_"])
    shown.type("\x1b")
    shown.wait_for("zz-bad", "aa-bad", without=["filter"])


def test_a_q_in_a_filter_is_a_letter(shown: Terminal) -> None:
    shown.type("/q")
    shown.wait_for("filter: q_")
    shown.type("\x7f")
    shown.wait_for("filter: _", "zz-bad")


def test_enter_opens_the_selected_job_and_esc_goes_back(shown: Terminal) -> None:
    shown.type("\x1b[B")  # down
    shown.wait_for("> ", "aa-bad")
    shown.type("\r")
    opened = shown.wait_for("last executions", "FAILED", "answered 500")
    assert "aa-bad" in opened
    assert "why" in opened
    shown.type("\x1b")
    shown.wait_for("worst jobs")


def test_p_pauses_and_goes_on(shown: Terminal) -> None:
    shown.type("p")
    shown.wait_for("PAUSED")
    shown.type("p")
    shown.wait_for("zz-bad", without=["PAUSED"])


def test_the_help_names_each_key(shown: Terminal) -> None:
    shown.type("?")
    shown.wait_for("quit (also Ctrl-C)", "filter jobs", "sort the jobs")
    shown.type("?")
    shown.wait_for("worst jobs")


def test_it_fits_a_smaller_terminal_at_once(shown: Terminal) -> None:
    shown.resize(70, 30)
    frame = shown.wait_for("zz-bad", "nodes")
    assert max(map(len, frame.splitlines())) <= 70
    assert len(frame.splitlines()) <= 30


@pytest.mark.parametrize("how", ["q", "\x03", "signal"])
def test_it_ends_cleanly_and_leaves_the_terminal_as_it_was(shown: Terminal, how: str) -> None:
    assert not shown.is_echoing()
    if how == "signal":
        shown.process.send_signal(signal.SIGINT)
    else:
        shown.type(how)
    assert shown.wait_for_end() == 0
    assert shown.is_echoing()
    assert "Traceback" not in shown.everything()


def test_a_server_that_goes_away_is_told_with_the_last_frame(tmp_path: Path) -> None:
    with served(tmp_path / "server") as url:
        terminal_of = program("--url", url, "top", "--interval", "0.5", folder=tmp_path)
        terminal = terminal_of.__enter__()
        terminal.wait_for("worst jobs")
    try:
        terminal.wait_for("no new frame", "the figures are of the last frame", "worst jobs")
        terminal.type("q")
        assert terminal.wait_for_end() == 0
    finally:
        terminal_of.__exit__(None, None, None)
