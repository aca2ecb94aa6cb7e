"""How much memory this process may use: the machine's memory, or less if its control group has a limit.

In a container the machine's memory does not apply: beyond the group's limit the kernel kills the process. Groups nest,
and the smallest limit on the path to the root applies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def memory_limit(proc: Path = PROC, groups: Path = GROUPS, machine: int | None = None) -> int:
    """Returns the limit in bytes. `machine`: the machine's memory; read from the system if None."""
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
    """Yields the limits of a group and its parents. In a container the path may be the host's and not exist here, but
    the root exists."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts), -1, -1):
        text = _text(root.joinpath(*parts[:depth], name)).strip()
        if text.isdecimal() and int(text) > 0:  # `max` means no limit
            yield int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux, or not mounted: no such limit
