"""An app whose program forks, as gunicorn --preload, uWSGI and multiprocessing do: enqueue works in all processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duetime import Client, Duetime
from patience import PATIENCE_SECONDS
from served import served

PROGRAM = Path(__file__).with_name("forking.py")
# How, and how often it enqueues.
HOW = [("fork", 6), ("multiprocessing", 10), ("async", 6), ("threads", 14), ("grandchildren", 10)]


def run(*arguments: str, program: Path = PROGRAM) -> list[str]:
    """The lines that the program prints. One that hangs is killed, with its children."""
    with subprocess.Popen(
        [sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0
    return said.splitlines()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as url:
        yield url


@pytest.mark.parametrize(("how", "count"), [*HOW, ("client", 6), ("async client", 5)])
def test_parent_and_children_enqueue_at_a_server(url: str, how: str, count: int) -> None:
    made = run(url, how)
    assert len(set(made)) == count
    with Client(url) as client:
        assert {client.get_job(job_id).name for job_id in made} == {"forked"}


@pytest.mark.parametrize(("how", "count"), HOW)
def test_parent_and_children_enqueue_in_an_embedded_app_and_the_parent_runs_it(
    tmp_path: Path, how: str, count: int
) -> None:
    said = run(f"sqlite:///{tmp_path / 'jobs'}", how, str(count))
    made = [line for line in said if not line.startswith("ran ")]
    ran = [line for line in said if line.startswith("ran ")]
    assert (len(set(made)), len(set(ran))) == (count, count)


def test_a_child_that_outlives_its_embedded_parent_says_so_and_does_not_hold_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), f"sqlite:///{folder}", "outlive"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.wait(PATIENCE_SECONDS) == -9
            process.stdin.write("gone\n")
            process.stdin.flush()
            made = process.stdout.readline().strip()
            said = process.stdout.readline()
            assert said.startswith("away this process was forked from one that ran an embedded Duetime")
            app = Duetime(f"sqlite:///{folder}")
            with app:  # while the child lives
                found = app.enqueue("forked", "after").job_id
            assert found != made
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_childs_stop_leaves_the_parents_app_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading\n"
        "from duetime import Duetime\n"
        f"app = Duetime('sqlite:///{tmp_path / 'jobs'}')\n"
        "done = threading.Event()\n"
        "@app.job(name='f')\n"
        "def f(): done.set()\n"
        "with app:\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
        "        app.enqueue(f)\n"
        f"        assert done.wait({PATIENCE_SECONDS})\n"
        "    else:\n"
        "        app.enqueue(f, at='2100-01-01T00:00Z')\n"
    )
    assert run(program=program) == []
