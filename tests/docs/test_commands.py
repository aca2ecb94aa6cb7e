"""The commands that the tutorial and the README tell people to type are typed, against a real server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks
from served import served, target


class Terminal:
    """A shell in which port 8080 is the server, 9000 the target, and on 9001 nobody listens, as the pages say."""

    def __init__(self, folder: Path, url: str, target_url: str, nobody: str) -> None:
        self._folder = folder
        self._ports = {
            "127.0.0.1:8080": url.removeprefix("http://"),
            "127.0.0.1:9000": target_url.removeprefix("http://"),
            "127.0.0.1:9001": nobody,
        }
        self._environment = {**os.environ, "DUETIME_URL": url, "PATH": f"{self._commands()}:{os.environ['PATH']}"}

    def _commands(self) -> Path:
        """A folder with `duetime`, and `curl` if the machine has none."""
        folder = self._folder / "bin"
        folder.mkdir()
        self._script(folder / "duetime", f'"{sys.executable}" -m duetime.cli.main "$@"')
        if shutil.which("curl") is None:
            self._script(folder / "curl", f'"{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"')
        return folder

    def _script(self, file: Path, line: str) -> None:
        file.write_text(f"#!/bin/sh\nexec {line}\n")
        file.chmod(0o755)

    def type(self, block: str) -> str:
        for written, real in self._ports.items():
            block = block.replace(written, real)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=self._folder, env=self._environment, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block}\n{ended.stdout}{ended.stderr}"
        return ended.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with target() as target_url, served(tmp_path) as url, socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # taken, but nobody listens: a connection is refused
        yield Terminal(tmp_path, url, target_url, f"127.0.0.1:{unheard.getsockname()[1]}")


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


def test_the_readme_names_the_two_commands_that_the_makefile_has() -> None:
    (start,) = blocks(ROOT / "README.md", "bash")
    targets = (ROOT / "Makefile").read_text()
    for line in start.splitlines():
        assert f"\n{line.split()[1]}: " in targets
