"""`make test` and similar commands: every part runs, the summary names the failures, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import run
from cluster.processes import wait_until

TESTS = """
def test_right():
    pass

def test_wrong():
    assert False
"""


def part(name: str, code: str, *codes: int) -> run.Part:
    return run.Part(name, [sys.executable, "-c", code], codes or (0,))


def test_all_parts_run_although_one_fails_and_the_summary_names_it(capfd: pytest.CaptureFixture[str]):
    parts = [part("first", "raise SystemExit(3)"), part("second", "print('it ran')"), part("third", "exit(5)", 0, 5)]
    assert run.run_all(parts, dict(os.environ)) == 1
    said, _ = capfd.readouterr()
    assert "it ran" in said
    assert [line.split()[0] for line in said.splitlines() if "FAILED (exit code 3)" in line] == ["first"]
    assert [part.passed for part in parts] == [False, True, True]
    assert said.rstrip().endswith("no tests of this kind"), "of the third"


def test_the_summary_reports_that_nothing_failed(capfd: pytest.CaptureFixture[str]):
    assert run.run_all([part("only", "")], dict(os.environ)) == 0
    assert "FAILED" not in capfd.readouterr().out


def test_the_summary_names_the_failed_tests(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}"]
    command += ["-p", "conftest", str(tmp_path)]
    # Installed plugins take longer to load than the tests to run.
    environment = {"PYTHONPATH": str(Path(run.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    assert run.run_all([run.Part("two", command)], os.environ | environment) == 1
    _, _, summary = capfd.readouterr().out.partition("== summary")
    assert "test_it.py::test_wrong" in summary
    assert "test_right" not in summary


def test_each_test_belongs_to_one_part():
    marks = [part.command[part.command.index("-m", 2) + 1] for part in run.tests([])]
    assert marks == [f"not soak and {kind}" for kind in ("not alone and not cluster", "cluster", "alone")]


def test_a_check_runs_the_fast_folders():
    (fast,) = run.fast_tests(["-k", "cron"])
    assert fast.command[-len(run.FAST) - 2 :][:2] == ["-k", "cron"]
    assert all(Path(folder).is_dir() for folder in fast.command[-len(run.FAST) :])


def test_processes_that_keep_the_machine_busy_end_with_the_run():
    before = children()
    with run.busy_machine():
        assert len(children() - before) == (os.cpu_count() or 1) + 1
    assert children() <= before


def test_processes_that_keep_the_machine_busy_end_when_their_parent_is_killed(tmp_path: Path):
    program = (
        "import run, subprocess, time\n"
        "pids, Popen = [], subprocess.Popen\n"
        "def popen(*args, **named):\n"
        "    process = Popen(*args, **named)\n"
        "    pids.append(process.pid)\n"
        "    return process\n"
        "subprocess.Popen = popen\n"
        "with run.busy_machine():\n"
        "    print(*pids, flush=True)\n"
        "    time.sleep(600)\n"
    )
    command, environment = [sys.executable, "-c", program], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, cwd=Path(run.__file__).parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        assert len(pids) == (os.cpu_count() or 1) + 1
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids), 60, "hogs and writer are gone")


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
