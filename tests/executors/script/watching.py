"""The log of a script, and its remaining processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from duetime.ports.logs import Stream
from patience import PATIENCE_SECONDS

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and sub-reapers")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a script a user of its own")
with_setsid = pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid")


class Kept:
    """A log writer that stores everything."""

    def __init__(self) -> None:
        self.written: list[tuple[Stream, str]] = []

    def write(self, stream: Stream, text: str) -> None:
        self.written.append((stream, text))

    async def close(self) -> None:
        return

    def text(self, stream: Stream = "stdout") -> str:
        return "".join(text for of, text in self.written if of == stream)


def python() -> str:
    """An interpreter that any user may run."""
    for path in (Path(sys.executable), *map(Path, ("/usr/bin/python3", "/usr/local/bin/python3"))):
        if path.exists() and (os.geteuid() != 0 or _open_to_all(path.resolve())):
            return str(path.resolve())
    pytest.skip("there is no Python here that the user of a script may run")


def _open_to_all(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


def alive(*marks: str) -> list[int]:
    """Returns processes with one of these in their arguments or environment that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and any(mark in _words(name) for mark in marks):
            found.append(int(name))
    return found


def _words(pid: str) -> str:
    """Returns an empty text for a process that has ended, even if it was not waited for yet."""
    words = b""
    for file in ("cmdline", "environ"):
        try:
            words += Path(f"/proc/{pid}/{file}").read_bytes()
        except OSError:
            continue
    return words.decode(errors="replace")


def exists(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.005)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
