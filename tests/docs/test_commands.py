"""Runs the commands of the tutorial, the README and how-tos against a real server."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import wait_until
from docs.pages import ROOT, blocks
from node_forks import fork_server
from patience import PATIENCE_SECONDS
from served import served, target


class Terminal:
    """A shell. Port 8080 becomes the server, other ports become `others`; `duetime-data` is the data folder."""

    def __init__(self, folder: Path, url: str, **others: str) -> None:
        self._folder = folder
        (folder / "duetime-data").symlink_to("data")
        self._ports = {"127.0.0.1:8080": url.removeprefix("http://")}
        self._ports |= {f"127.0.0.1:{name.removeprefix('port_')}": real for name, real in others.items()}
        self._environment = {**os.environ, "DUETIME_URL": url, "PATH": f"{self._commands()}:{os.environ['PATH']}"}

    def _commands(self) -> Path:
        """Returns a folder with `duetime`, a `python` that can import it, and `curl` if the machine has none."""
        folder = self._folder / "bin"
        folder.mkdir()
        self._script(folder / "python", f'"{sys.executable}" "$@"')
        self._script(folder / "duetime", f'{shlex.join(fork_server.command())} "$@"')
        if shutil.which("curl") is None:
            self._script(folder / "curl", f'"{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"')
        return folder

    def _script(self, file: Path, line: str) -> None:
        file.write_text(f"#!/bin/sh\nexec {line}\n")
        file.chmod(0o755)

    def try_to_type(self, block: str) -> str:
        """Returns the output, or nothing if the block fails because it runs too early."""
        try:
            return self.type(block)
        except AssertionError:
            return ""

    def type(self, block: str, **found: str) -> str:
        """Runs the block, returns its output. `found`: values from earlier output, by the placeholder they replace."""
        for written, real in (self._ports | found).items():
            block = block.replace(written, real)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=self._folder, env=self._environment, capture_output=True,
            text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block}\n{ended.stdout}{ended.stderr}"
        return ended.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A target listens on 9000, and nothing on 9001."""
    with target() as target_url, served(tmp_path) as url, socket.socket() as silent_socket:
        silent_socket.bind(("127.0.0.1", 0))  # used, but not listening: a connection is refused
        nobody = f"127.0.0.1:{silent_socket.getsockname()[1]}"
        yield Terminal(tmp_path, url, port_9000=target_url.removeprefix("http://"), port_9001=nobody)


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A server with identity, and with metrics on 9090."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("DUETIME_JWT_SECRET", secrets.token_hex(32))
    monkeypatch.setenv("DUETIME_METRICS_PORT", str(port))
    with served(tmp_path) as url:
        yield Terminal(tmp_path, url, port_9090=f"127.0.0.1:{port}")


def test_the_tutorial_does_what_it_says(terminal: Terminal) -> None:
    said = [terminal.type(block) for block in blocks(ROOT / "docs/tutorial/first-job.md", "bash run")]
    health, created, history, why, missing, nobody, dead, cron, cancelled = said
    assert "healthy" in health
    assert '"name":"front-page"' in created
    assert "COMPLETED" in history
    assert "It will not run until it is resumed." in why
    assert "answered 404" in missing
    assert "RETRYING" in nobody
    assert "1 run again" in dead
    assert "clocks in Europe/Berlin go forward" in cron
    assert "CANCELLED" in cancelled


def test_the_first_jobs_of_the_readme_are_created(terminal: Terminal) -> None:
    created, asked = [terminal.type(block) for block in blocks(ROOT / "README.md", "bash run")]
    assert '"status":"PENDING"' in created
    assert "hello" in asked
    assert "It will run at " in asked


def test_the_page_on_identity_is_true(guarded: Terminal) -> None:
    own, token, key, revoked, in_the_tenant, across, first_key = blocks(
        ROOT / "docs/how-to/let-people-in.md", "bash run"
    )
    job_id = guarded.type(own).split()[1]
    assert '{"jobs":[],' in guarded.type(token), "ann sees her own, and there are none"
    (key_id,) = re.findall("^dt_([a-z0-9]{16})_", made := guarded.type(key), re.MULTILINE)
    assert "read, run" in made
    assert "in 90 d" in made
    assert "revoked" in guarded.type(revoked, KEY_ID=key_id)
    assert '"error":"FORBIDDEN"' in guarded.type(in_the_tenant, JOB_ID=job_id)
    assert '"error":"NOT_FOUND"' in guarded.type(across, JOB_ID=job_id)
    assert "globex-ci" in guarded.type(first_key)
    assert "globex-ci" not in guarded.type("duetime token list"), "it is another tenant's"


def test_the_page_on_limits_is_true(guarded: Terminal) -> None:
    said = [guarded.type(block) for block in blocks(ROOT / "docs/how-to/limit-use.md", "bash run")]
    limits, health, metrics = said
    page = (ROOT / "docs/how-to/limit-use.md").read_text()
    assert "x-ratelimit-limit: 1000" in limits.lower()
    answered = json.loads(health)
    for part in ("memory", "jobs"):
        assert all(f"`{name}`" in page for name in answered[part])
    names = set(re.findall("^(duetime_[a-z_]+)", metrics, re.MULTILINE))
    documented = set(re.findall("`(duetime_[a-z_]+)`", page))
    assert documented <= names
    assert {name for name in names if name.startswith("duetime_queue_")} <= documented


def test_the_page_on_circuits_is_true(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.delenv("DUETIME_CIRCUIT_BREAKER_THRESHOLD")  # the default that users have
    terminal: Terminal = request.getfixturevalue("terminal")
    see, skipped, close = blocks(ROOT / "docs/how-to/circuit-breaker.md", "bash run")
    (circuit,) = re.findall(r"^ *([0-9a-f]{16}) .*OPEN", terminal.type(see), re.MULTILINE)
    said = terminal.type(skipped)
    assert "SKIPPED" in said
    assert "is open since" in said
    assert "tried again from" in said
    closed, nothing = terminal.type(close, CIRCUIT_ID=circuit).splitlines()
    assert "Circuit closed." in closed
    assert nothing == "No target has failed lately."


def test_the_page_on_the_audit_is_true(terminal: Terminal) -> None:
    said = [terminal.type(block) for block in blocks(ROOT / "docs/how-to/read-the-audit.md", "bash run")]
    listed, verified, against, exported, fits = said
    assert "job.create" in listed
    assert '"after": {' in listed
    assert verified == "The audit is whole: 2 entries in 1 chain.\n"
    assert against == 2 * verified
    assert exported == f"Exported 2 entries to audit.jsonl.\n{verified}"
    assert fits == 2 * verified


def test_dead_letters_are_found_and_run_again(terminal: Terminal) -> None:
    made, found, again, asked = blocks(ROOT / "docs/how-to/dead-letters.md", "bash run")
    terminal.type(made)
    assert terminal.type(found).count("FAILED") == 3
    said = terminal.type(again)
    assert "3 run again, the last at 20" in said
    assert "the next one that waits is due at" in said
    assert '"redriven":' in terminal.type(asked)


def test_jobs_are_chained(terminal: Terminal) -> None:
    made, asked, history, loop = blocks(ROOT / "docs/how-to/chain-jobs.md", "bash run")
    assert '"created_count":4' in terminal.type(made)
    assert "waits for 'clean' to succeed" in terminal.type(asked)
    wait_until(lambda: '"COMPLETED"' in (said := terminal.type(history)) and '"after"' in said, 30, "the chain has run")
    assert "extract → count → extract" in terminal.type(loop)


def test_notifications_are_sent_when_an_execution_ends(terminal: Terminal) -> None:
    made, notified, subscribed = blocks(ROOT / "docs/how-to/hear-how-it-ended.md", "bash run")
    assert '"status":"PENDING"' in terminal.type(made)
    wait_until(lambda: "COMPLETED" in terminal.try_to_type(notified), 30, "the notification of the failure was sent")
    assert "execution.failed, job.paused" in terminal.type(subscribed)


def test_the_readme_names_the_two_commands_that_the_makefile_has() -> None:
    (start,) = blocks(ROOT / "README.md", "bash")
    targets = (ROOT / "Makefile").read_text()
    for line in start.splitlines():
        assert f"\n{line.split()[1]}: " in targets
