"""What the system offers beyond Python's os: prctl, /proc, and descriptors over a socket.

Outside Linux, prctl does nothing, and /proc is empty.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable, Iterable

LINUX = sys.platform.startswith("linux")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PAGE = os.sysconf("SC_PAGE_SIZE")

# Looked up once, before any fork: a child between fork and exec only calls it.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None


def receive_descriptors(node: socket.socket, count: int) -> list[int] | None:
    """Returns the descriptors that a node has sent to its fork server, with one request for a child.

    None: the node is gone. An empty list: too many are open here; the node sees its end close, and says so.
    """
    try:
        data, descriptors, _, _ = socket.recv_fds(node, 1, count)
    except ConnectionError:
        return None
    if not data:
        return None
    if len(descriptors) < count:
        for descriptor in descriptors:
            os.close(descriptor)
        return []
    return descriptors


def become_subreaper() -> None:
    """From now on, orphans among our descendants become our children instead of init's."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Get this signal when the parent dies. Forgotten by the kernel at a change of user, so call it after that."""
    _set(_PR_SET_PDEATHSIG, signal_number)
    if LINUX and os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def forgo_privileges() -> None:
    """No program that is run from here on gains any: set-user-id means nothing to it."""
    _set(_PR_SET_NO_NEW_PRIVS, 1)


def _set(option: int, value: int) -> None:
    if _prctl is not None and _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def descendants(root: int, spared: Iterable[int] = ()) -> list[int]:
    """Processes that descend from this one, parents first; those of `spared` and theirs left out.

    Processes come and go meanwhile, so one look may miss some: whoever needs all of them looks until there are none.
    """
    left_out = frozenset(spared)
    children = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _scan()
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children(pid) if child not in left_out]
        found += level
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _names(f"/proc/{pid}/task"):
        found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _scan() -> Callable[[int], list[int]]:
    """The same from the list of all processes, for kernels that keep no list of children."""
    by_parent: dict[int, list[int]] = {}
    for pid in processes():
        fields = _stat(pid)
        if fields:
            by_parent.setdefault(int(fields[1]), []).append(pid)
    return lambda pid: by_parent.get(pid, [])


def processes() -> list[int]:
    return [int(name) for name in _names("/proc") if name.isdecimal()]


def tasks_of(user: int) -> int:
    """Threads of all processes of this user that we can see: what the limit on processes counts."""
    count = 0
    for pid in processes_of(user):
        fields = _stat(pid)
        count += int(fields[17]) if fields else 0
    return count


def processes_of(user: int) -> list[int]:
    found = []
    for pid in processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == user:
                found.append(pid)
        except OSError:
            continue  # it is gone
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that these hold, pages that they share counted for each of them: quick, and never too little."""
    total = 0
    for pid in pids:
        fields = _read(f"/proc/{pid}/statm").split()
        total += int(fields[1]) * _PAGE if fields else 0
    return total


def proportional_bytes(pids: Iterable[int]) -> int:
    """The same with shared pages counted once; where the kernel does not tell, as resident_bytes."""
    total = 0
    for pid in pids:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
                break
        else:
            total += resident_bytes([pid])
    return total


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, which may hold spaces and brackets; empty when it is gone."""
    return _read(f"/proc/{pid}/stat").rpartition(") ")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
