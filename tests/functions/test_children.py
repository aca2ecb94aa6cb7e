"""Functions in child processes, which are killed at a stop, replaced after a death, and never left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from functions.jobs import APP, app
from functions.stage import Stage, working
from patience import PATIENCE_SECONDS
from processes import child

PROGRAM = Path(__file__).parent / "program.py"
OWN = {"pool": "process", "app": APP}


def is_alive(pid: int) -> bool:
    """Returns whether a process runs. A zombie does not: its new parent may never reap it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < deadline, "it never came true"
        sleep(0.01)


async def marked(mark: Path) -> list[int]:
    """Returns the process ids that a function has written to a file."""

    def read() -> list[int]:
        return [int(word) for word in mark.read_text().split()] if mark.exists() else []

    deadline = monotonic() + PATIENCE_SECONDS
    while not read():
        assert monotonic() < deadline, "it never began"
        await asyncio.sleep(0.01)
    return read()


async def test_calls_run_in_processes_that_are_reused():
    stage = Stage(on_wire=True)
    async with working(stage, app.registry, slots=2, **OWN):
        pids = {(await stage.run("pid")).result for _ in range(10)}
        assert (await stage.run("add", 1, b=2)).result == "3"
        failed = await stage.run("fail", "no paper")
        left = await stage.run("leave", 3)
        stage.add("step")
        stage.add("step")
        for number in range(300):
            stage.add("add", number)
        await stage.until(lambda: all(stage.ends.values()))
    assert len(pids) <= 2
    assert str(os.getpid()) not in pids
    assert (failed.error_type, failed.error_message) == ("function_error", "ValueError: no paper")
    assert left.error_message == "SystemExit: 3"
    assert [ends[0].result for ends in stage.ends.values()][-300:] == [str(number) for number in range(300)]


async def test_the_duration_of_a_stopped_attempt_is_its_running_time(tmp_path: Path):
    """Otherwise its running time would count as lateness."""
    stage = Stage(on_wire=True)
    clock = iter(range(1000, 10**6, 1000))  # each read is a second later
    async with working(stage, app.registry, slots=1, now=lambda: next(clock), **OWN):
        late = await stage.run("sleep_long", str(tmp_path / "late"), timeout_seconds=0.2)
        killed_id = stage.add("sleep_long", str(tmp_path / "killed"))
        os.kill((await marked(tmp_path / "killed"))[0], signal.SIGKILL)
        killed = await stage.end_of(killed_id)
    assert (late.error_type, killed.error_type) == ("timeout", "function_error")
    assert late.ended_at - late.started_at >= 1000
    assert killed.ended_at - killed.started_at >= 1000


async def test_the_output_of_a_process_is_in_the_log_of_its_call():
    stage = Stage()
    async with working(stage, app.registry, slots=1, **OWN):
        for _ in range(3):
            await stage.run("shout")
            await stage.run("speak")
        failed = await stage.run("fail", "no paper")
    for execution_id in ("e0", "e2", "e4"):
        assert stage.log_of(execution_id, "stdout") == "from the system\nfrom Python\n"
        assert stage.log_of(execution_id, "stderr") == "from a child\n"
    assert stage.log_of("e1") == stage.log_of("e5") == "one 1\nERROR two %\nthree\n"
    assert stage.log_of(failed.execution_id).endswith("ValueError: no paper\n")


async def test_the_next_attempt_has_the_saved_progress():
    stage = Stage()
    async with working(stage, app.registry, slots=1, **OWN):
        await stage.run("step")
        stage.again("e0")
        await stage.until(lambda: len(stage.ends["e0"]) == 2)
    assert (stage.ends["e0"][1].result, stage.progress["e0"]) == ('{"step":1}', {"step": 2})


async def test_a_process_that_is_killed_in_the_middle_of_a_call_is_replaced(tmp_path: Path):
    stage = Stage()
    async with working(stage, app.registry, slots=1, **OWN):
        execution_id = stage.add("start_another", str(tmp_path / "mark"))
        pid, other = await marked(tmp_path / "mark")
        os.kill(pid, signal.SIGKILL)
        ended = await stage.end_of(execution_id)
        assert (ended.error_type, ended.error_message) == ("function_error", "its process was ended by SIGKILL")
        wait_until(lambda: not is_alive(other))  # its child process has ended with it
        assert int((await stage.run("pid")).result or 0) != pid, "the slot is usable again"


@pytest.mark.parametrize("end", ["timeout", "cancelled"])
async def test_a_call_that_must_stop_is_killed_with_its_child_processes(tmp_path: Path, end: str):
    stage = Stage(lease_seconds=1.5)
    async with working(stage, app.registry, slots=1, **OWN):
        await stage.run("nothing")  # the process has started: only the call's own time counts
        seconds = 4.0 if end == "timeout" else 600.0
        execution_id = stage.add("start_another", str(tmp_path / "mark"), timeout_seconds=seconds)
        pids = await marked(tmp_path / "mark")
        if end == "cancelled":
            stage.cancel(execution_id)
        assert (await stage.end_of(execution_id)).error_type == end
        wait_until(lambda: not any(map(is_alive, pids)))
        assert (await stage.run("nothing")).error_type is None


async def test_a_call_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetime.functions.children.STOP_SECONDS", 0.2)
    monkeypatch.setenv("DUETIME_TEST_CHILD", "yes")
    stage = Stage(lease_seconds=1.5)
    async with working(stage, app.registry, slots=1, **OWN):
        execution_id = stage.add("ignore_all", str(tmp_path / "mark"), str(tmp_path / "never"))
        (pid,) = await marked(tmp_path / "mark")
        stage.cancel(execution_id)
        assert (await stage.end_of(execution_id)).error_type == "cancelled"
        assert not is_alive(pid)


async def test_a_worker_that_lost_its_lease_kills_its_calls(tmp_path: Path):
    stage = Stage(lease_seconds=1.5)
    async with working(stage, app.registry, slots=1, **OWN):
        stage.add("start_another", str(tmp_path / "mark"))
        pids = await marked(tmp_path / "mark")
        (tmp_path / "mark").unlink()
        stage.lose()
        again = await marked(tmp_path / "mark")
        wait_until(lambda: not any(map(is_alive, pids)))
        assert len(stage.joins) == 2
    wait_until(lambda: not any(map(is_alive, again)))


def test_a_worker_that_is_killed_leaves_no_process(tmp_path: Path):
    with child(PROGRAM, "pool", str(tmp_path / "mark")) as program:
        assert program.stdout is not None
        said = json.loads(program.stdout.readline())
        wait_until(lambda: (tmp_path / "mark").exists() and len((tmp_path / "mark").read_text().split()) == 2)
        pids = [*said["children"], said["reaper"], *map(int, (tmp_path / "mark").read_text().split())]
        assert len(set(pids)) == 4
        assert all(map(is_alive, pids))
        program.kill()
        wait_until(lambda: not any(map(is_alive, pids)))


def test_a_second_stop_leaves_no_process(tmp_path: Path):
    with child(PROGRAM, "pool", str(tmp_path / "mark")) as program:
        assert program.stdout is not None
        said = json.loads(program.stdout.readline())
        wait_until(lambda: (tmp_path / "mark").exists() and len((tmp_path / "mark").read_text().split()) == 2)
        program.terminate()
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0
        wait_until(lambda: not any(map(is_alive, [*said["children"], said["reaper"]])))


# Several workers


def workers_in(folder: Path) -> set[int]:
    return {int(path.read_text()) for path in folder.iterdir() if path.read_text()}


def test_the_supervisor_replaces_a_dead_process_and_stops_with_a_signal(tmp_path: Path):
    with child(PROGRAM, "fleet", str(tmp_path / "mark")) as parent:
        wait_until(lambda: len(workers_in(tmp_path)) == 2)
        one, two = workers_in(tmp_path)
        os.kill(one, signal.SIGKILL)
        wait_until(lambda: len(workers_in(tmp_path)) == 3)
        (three,) = workers_in(tmp_path) - {one, two}
        assert is_alive(two)
        parent.terminate()
        assert parent.wait(20) == 0
        assert not is_alive(two)
        assert not is_alive(three)


def test_worker_processes_end_with_their_parent(tmp_path: Path):
    with child(PROGRAM, "fleet", str(tmp_path / "mark")) as parent:
        wait_until(lambda: len(workers_in(tmp_path)) == 2)
        pids = workers_in(tmp_path)
        parent.kill()
        wait_until(lambda: not any(map(is_alive, pids)))


def test_worker_processes_without_their_app_report_it_and_end(tmp_path: Path):
    with child(PROGRAM, "fleet", str(tmp_path / "mark"), "no_such_module:app") as parent:
        assert parent.wait(20) == 1
