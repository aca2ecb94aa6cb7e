"""Child processes and scratch folders: every one started here is gone when the harness ends, however it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
PYTHON_VARIABLE = "DUETIME_BENCH_PYTHON"
PYTHON = os.environ.get(PYTHON_VARIABLE, sys.executable)  # what is measured may be of another checkout
MEASURED = Path(PYTHON).absolute().parents[2] if PYTHON_VARIABLE in os.environ else ROOT  # that checkout

_children: set[subprocess.Popen[bytes]] = set()
_folders: set[Path] = set()


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path = ROOT,
) -> subprocess.Popen[bytes]:
    """Start a child as the leader of a process group of its own, so that stopping it stops what it started."""
    child = subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        start_new_session=True,
    )
    _children.add(child)
    return child


def stop(child: subprocess.Popen[bytes], grace_seconds: float = 10.0) -> None:
    """End a child: politely, then for good."""
    if child.poll() is None:
        _signal_group(child, signal.SIGTERM)
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            kill(child)
    _signal_group(child, signal.SIGKILL)
    _close_pipes(child)
    _children.discard(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """End a child as a crash would."""
    _signal_group(child, signal.SIGKILL)
    child.wait(10)
    _close_pipes(child)
    _children.discard(child)


def run(
    command: Sequence[str | Path],
    *,
    input_bytes: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    timeout_seconds: float,
) -> bytes:
    """Runs a child to its end. Returns what it printed; its errors go to ours."""
    child = start(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    try:
        output, _ = child.communicate(input_bytes, timeout=timeout_seconds)
    finally:
        stop(child, 1.0)
    if child.returncode:
        raise RuntimeError(f"{' '.join(str(part) for part in command)} ended with {child.returncode}")
    return output


def scratch(name: str) -> Path:
    """A new folder that `remove` or the end of the harness deletes."""
    folder = Path(tempfile.mkdtemp(prefix=f"duetime-bench-{name}-"))
    _folders.add(folder)
    return folder


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def group_cpu_seconds(child: subprocess.Popen[bytes]) -> float:
    """Processor time that the child's whole process group has used so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(user + system for user, system, _ in _group_stats(child.pid)) / ticks


def group_rss_bytes(child: subprocess.Popen[bytes]) -> int:
    """Resident memory of the child's whole process group."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(pages for _, _, pages in _group_stats(child.pid)) * page


def _group_stats(group: int) -> list[tuple[int, int, int]]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found.append((int(fields[11]), int(fields[12]), int(fields[21])))
    return found


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _end_everything() -> None:
    for child in list(_children):
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + 10
    for child in list(_children):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.1, deadline - time.monotonic()))
        stop(child, 0.1)
    for folder in list(_folders):
        remove(folder)


atexit.register(_end_everything)
