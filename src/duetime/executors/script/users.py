"""Users for scripts, one for each that runs, where the fork server is root.

They are bare numbers without a name, a password or a group. A user of its own keeps a script from the files and
processes of the node and of other scripts, gives the kernel's limit on processes something to count, and makes one
kill of all that it runs possible, in one step. A number that anybody else uses is left alone.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket

from duetime.executors.script.system import LINUX, processes_of

FIRST = 62_000
COUNT = 1000


def may_switch() -> bool:
    """Whether this process can become one of them: it is root, and not in a namespace that lacks these numbers."""
    if not LINUX or os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        try:
            switch(FIRST)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def switch(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def end_all_of(user: int) -> bool:
    """SIGKILL to every process of this user, which none of them outruns: the kernel lets nobody fork meanwhile.

    False: it did not work; a script may kill whoever becomes its user, and so the one who is about to do this.
    """
    child = os.fork()
    if child == 0:
        try:
            switch(user)
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            os._exit(0)  # there is none
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


class Users:
    """The numbers that this fork server has taken; each is free or with one supervisor."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = FIRST
        # Another fork server on this machine sees by the name that a number is taken. The kernel frees the name when
        # the last process with the socket is gone: the fork server, and the supervisor that has the number.
        self._locks: dict[int, socket.socket] = {}

    def take(self) -> int | None:
        """None: there is no free one left on this machine."""
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
        """In a supervisor: hold no lock but that of its own number."""
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
