"""`duetime promote` and `duetime serve` in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from node_forks import fork_server

DUETIME = str(Path(sys.executable).with_name("duetime"))


def environment(**settings: str) -> dict[str, str]:
    names = {f"DUETIME_{name}": value for name, value in settings.items()}
    return {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")} | names


def duetime(*arguments: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run([DUETIME, *arguments], cwd, environment(**settings))


def promote(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return duetime("promote", "--data", str(folder), *arguments, cwd=folder.parent, **settings)


def kill_after(seconds: float, folder: Path, *arguments: str) -> None:
    """Kills a promotion with SIGKILL after this time, unless it has ended."""
    command = [DUETIME, "promote", "--data", str(folder), *arguments]
    with suppress(subprocess.TimeoutExpired):
        fork_server.run(command, folder.parent, environment(), seconds)


def serve(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `duetime serve`, which must refuse to start."""
    return duetime("serve", "--data", str(folder), "--port", "0", cwd=folder.parent)
