"""`duetime promote` and `duetime serve`, typed in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from patience import PATIENCE_SECONDS

DUETIME = str(Path(sys.executable).with_name("duetime"))


def environment(**settings: str) -> dict[str, str]:
    names = {f"DUETIME_{name}": value for name, value in settings.items()}
    return {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")} | names


def duetime(*arguments: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DUETIME, *arguments], env=environment(**settings), cwd=cwd, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def promote(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return duetime("promote", "--data", str(folder), *arguments, cwd=folder.parent, **settings)


def kill_after(seconds: float, folder: Path, *arguments: str) -> None:
    """A promotion that is killed with -9 then, unless it has ended before."""
    command = [DUETIME, "promote", "--data", str(folder), *arguments]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, env=environment(), cwd=folder.parent, stdout=subprocess.DEVNULL, timeout=seconds, check=False
        )


def serve(folder: Path) -> subprocess.CompletedProcess[str]:
    """One that is expected to refuse."""
    return duetime("serve", "--data", str(folder), "--port", "0", cwd=folder.parent)
