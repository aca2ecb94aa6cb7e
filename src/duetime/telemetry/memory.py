"""How much memory this process may use: the machine's, or what its control group leaves of that.

In a container the machine's figure is not ours: beyond the group's limit the kernel kills. Groups nest, and the
smallest limit on the way up holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def memory_limit(proc: Path = PROC, groups: Path = GROUPS, machine: int | None = None) -> int:
    """In bytes. `machine` is what the machine has; asked of it if None."""
    limits = [machine if machine is not None else _machine(), *_limits_of_groups(proc, groups)]
    return min(limits)


def _machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limits_of_groups(proc: Path, groups: Path) -> Iterator[int]:
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:  # version 2: one tree for all
            yield from _limits_upwards(groups, path, "memory.max")
        elif "memory" in controllers.split(","):  # version 1: a tree for each controller
            yield from _limits_upwards(groups / "memory", path, "memory.limit_in_bytes")


def _limits_upwards(root: Path, path: str, name: str) -> Iterator[int]:
    """Of the group and those it is in. Inside a container the path may be the host's, and not exist: its root does."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts), -1, -1):
        text = _text(root.joinpath(*parts[:depth], name)).strip()
        if text.isdecimal() and int(text) > 0:  # or `max`: none
            yield int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux, or not mounted: no such limit
