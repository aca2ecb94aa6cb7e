"""User ids for scripts: if the fork server is root, each running script has its own.

They are plain numbers without a name, a password or a group. A separate user id protects the files and processes of the
node and of other scripts, lets the kernel count the script's processes for their limit, and allows killing all of its
processes in one step. A number that is in use otherwise is not taken.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
from contextlib import suppress

from duetime.executors.script.system import LINUX, processes_of, succeeds_in_child

FIRST = 62_000
COUNT = 1000


def may_switch() -> bool:
    """Returns whether this process can switch to these users: it is root, in a namespace that has these numbers."""
    return LINUX and os.geteuid() == 0 and succeeds_in_child(lambda: switch(FIRST))


def switch(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def end_all_of(user: int) -> bool:
    """Sends SIGKILL to every process of this user. None can escape: the kernel allows no fork meanwhile.

    Returns False if that failed. The killing process runs as the script's user, so the script may kill it first.
    """

    def kill() -> None:
        switch(user)
        with suppress(ProcessLookupError):  # the user has no processes
            os.kill(-1, signal.SIGKILL)

    return succeeds_in_child(kill)


class Users:
    """The user ids that this fork server has locked. Each is free or used by one supervisor."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = FIRST
        # A socket name tells other fork servers on this machine that a number is taken. The kernel frees the name when
        # the last process that holds the socket has ended: the fork server, and the supervisor that uses the number.
        self._locks: dict[int, socket.socket] = {}

    def take(self) -> int | None:
        """Returns a free user id; None if there is none left on this machine."""
        if self._free:
            return self._free.pop()
        while self._next < FIRST + COUNT:
            user = self._next
            self._next += 1
            if self._lock(user):
                return user
        return None

    def give_back(self, user: int) -> None:
        self._free.append(user)

    def close_others(self, user: int | None) -> None:
        """Closes all locks except the lock of `user`. A supervisor calls it, so that it holds only its own user id."""
        for other, lock in self._locks.items():
            if other != user:
                lock.close()

    def _lock(self, user: int) -> bool:
        if _has_name(user) or processes_of(user):
            return False
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind(f"\0duetime-script-user-{user}")
        except OSError:
            lock.close()
            return False
        self._locks[user] = lock
        return True


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True
