"""A web program under `gunicorn --preload`: its app enqueues in the parent and in four workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.conftest import until
from duetime import Client
from patience import PATIENCE_SECONDS
from served import served

pytest.importorskip("gunicorn", reason="gunicorn is not installed: `make setup` installs it")

WORKERS = 4
LISTENING = re.compile(r"Listening at: (http://127\.0\.0\.1:\d+)")


@contextmanager
def preloaded(url: str, folder: Path) -> Iterator[str]:
    """Returns the URL of the program when it listens."""
    env = {**os.environ, "PRELOADED_URL": url, "PRELOADED_TALLY": str(folder / "tally")}
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--bind", "127.0.0.1:0"]
    command += ["--config", "python:preloaded", "--no-control-socket", "preloaded:web"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if found := LISTENING.search(line):
                    yield found[1]
                    break
            else:
                raise AssertionError("".join(said))
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


def show(listening: str, enqueued: Callable[[], list[tuple[str, int]]]) -> None:
    with urllib.request.urlopen(listening, timeout=PATIENCE_SECONDS) as answer:
        assert len(answer.read()) == 36
    found = until(enqueued, lambda seen: len(seen) == WORKERS + 2)
    assert sorted(who for who, _ in found) == ["asked", *["forked"] * WORKERS, "loaded"]
    workers = {process for who, process in found if who == "forked"}
    assert len(workers) == WORKERS
    assert {process for who, process in found if who == "asked"} < workers
    assert not workers & {process for who, process in found if who == "loaded"}


def test_parent_and_workers_enqueue_at_a_server(tmp_path: Path) -> None:
    def enqueued() -> list[tuple[str, int]]:
        return [tuple(job.payload["args"]) for job in client.list_jobs(name="preloaded")]

    with served(tmp_path) as url, Client(url) as client, preloaded(url, tmp_path) as listening:
        show(listening, enqueued)


def test_the_parent_runs_the_jobs_of_an_embedded_app(tmp_path: Path) -> None:
    def enqueued() -> list[tuple[str, int]]:
        lines = (tmp_path / "tally").read_text().splitlines() if (tmp_path / "tally").exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    with preloaded(f"sqlite:///{tmp_path / 'jobs'}", tmp_path) as listening:
        show(listening, enqueued)
