"""System calls of fork servers and their children, and those that Python lacks: prctl, reading /proc.

Outside Linux, the prctl functions do nothing, and /proc counts as empty.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable

LINUX = sys.platform.startswith("linux")
IGNORED_BY_FORK_SERVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PAGE = os.sysconf("SC_PAGE_SIZE")

# Looked up once, before any fork: between fork and exec, a child only calls it.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None


def receive_descriptors(node: socket.socket, count: int) -> list[int] | None:
    """Receives one request of a node to its fork server. Returns its descriptors.

    Returns None if the node has ended. Returns an empty list if too many descriptors are open here: the node then sees
    its end of the socket close, and reports that.
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


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    """Receives `size` bytes. Returns empty bytes if the peer closed the socket before."""
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


def become_fork_server(descriptor: int) -> socket.socket:
    """Prepares this process as a fork server, which ends when its node ends, and not before. Returns its socket."""
    for number in IGNORED_BY_FORK_SERVER:
        signal.signal(number, signal.SIG_IGN)
    node = socket.socket(fileno=descriptor)
    node.set_inheritable(False)
    gc.disable()
    gc.freeze()
    return node


def succeeds_in_child(deed: Callable[[], object]) -> bool:
    """Calls `deed` in a forked child. Returns whether it raised nothing, and the child was not killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            deed()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def wake_up_pipe() -> tuple[int, int]:
    """Returns a descriptor that is readable after a child has ended, and the descriptor that SIGCHLD writes to."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reads, writes


def limit_resource(which: int, soft: int, hard: int | None = None) -> None:
    """Sets a resource limit, but not above the hard limit of this process."""
    most = resource.getrlimit(which)[1]
    hard = soft if hard is None else hard
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


def become_subreaper() -> None:
    """Makes orphans among our descendants our children instead of init's, from now on."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Has the kernel send this signal to us when the parent dies. A change of user resets that: call this after it."""
    _set(_PR_SET_PDEATHSIG, signal_number)
    if LINUX and os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def forgo_privileges() -> None:
    """Keeps all programs that this process runs from gaining privileges: set-user-id has no effect on them."""
    _set(_PR_SET_NO_NEW_PRIVS, 1)


def _set(option: int, value: int) -> None:
    if _prctl is not None and _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def descendants(root: int, spared: Iterable[int] = ()) -> list[int]:
    """Returns the descendants of a process, parents first, without the processes of `spared` and their descendants.

    Processes start and end meanwhile, so one call may miss some. A caller that needs all repeats it until none is left.
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
    """Returns a replacement for `_children` that scans all processes, for kernels that keep no list of children."""
    by_parent: dict[int, list[int]] = {}
    for pid in processes():
        fields = _stat(pid)
        if fields:
            by_parent.setdefault(int(fields[1]), []).append(pid)
    return lambda pid: by_parent.get(pid, [])


def processes() -> list[int]:
    return [int(name) for name in _names("/proc") if name.isdecimal()]


def tasks_of(user: int) -> int:
    """Returns the number of threads of this user's visible processes: the limit on processes counts threads."""
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
            continue  # the process has ended
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Returns the resident memory of these processes. Counts shared pages once per process: fast, and never too low."""
    total = 0
    for pid in pids:
        fields = _read(f"/proc/{pid}/statm").split()
        total += int(fields[1]) * _PAGE if fields else 0
    return total


def proportional_bytes(pids: Iterable[int]) -> int:
    """Like `resident_bytes`, but splits shared pages between their processes, if the kernel reports that (Pss)."""
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
    """Returns the fields of /proc/<pid>/stat after the name, which may hold spaces and brackets; empty if it ended."""
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
