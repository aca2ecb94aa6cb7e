"""The fork server: one process per node, which forks a supervisor for each script.

A request from the node is one byte and three descriptors: the supervisor's socket, and the pipes for the script's
output. The fork server does not reply. It is a sub-reaper too: it inherits the processes that a killed supervisor
leaves behind, and kills them.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import time
import traceback

from duetime.executors.script.supervisor import ScriptSupervisor, end_descendants
from duetime.executors.script.system import (
    LINUX,
    become_fork_server,
    become_subreaper,
    descendants,
    receive_descriptors,
    wake_up_pipe,
)
from duetime.executors.script.users import Users, end_all_of, may_switch
from duetime.executors.script.wire import Refused, to_line

_LAST_SECONDS = 10.0  # to wait for the supervisors to end after the node has ended
_DESCRIPTORS = 3


class ForkServer:
    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._users = Users() if may_switch() else None
        self._supervisors: dict[int, int | None] = {}  # the user ids of their scripts, by process id
        self._wakes, self._wake = wake_up_pipe()

    def run(self) -> None:
        """Serves until the node has ended, then waits for the supervisors to end."""
        poll = select.poll()
        poll.register(self._node, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wakes in ready:
                os.read(self._wakes, 4096)
                self._reap()
            if self._node.fileno() in ready and not self._accept():
                break
        deadline = time.monotonic() + _LAST_SECONDS
        while self._supervisors and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)

    def _accept(self) -> bool:
        """Handles one request. Returns False if the node has ended."""
        descriptors = receive_descriptors(self._node, _DESCRIPTORS)
        if descriptors is None:
            return False
        if not descriptors:
            return True
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # received descriptors are inheritable: the script would get them
        control, outputs = socket.socket(fileno=descriptors[0]), (descriptors[1], descriptors[2])
        user = self._users.take() if self._users is not None else None
        if self._users is not None and user is None:
            control.send(to_line(Refused(126, "There is no free user for one more script on this machine.")))
        else:
            self._fork(control, outputs, user)
        control.close()
        for output in outputs:
            os.close(output)
        return True

    def _fork(self, control: socket.socket, outputs: tuple[int, int], user: int | None) -> None:
        pid = os.fork()
        if pid != 0:
            self._supervisors[pid] = user
            return
        code = 1
        try:
            for descriptor in (self._wakes, self._wake, self._node.detach()):
                os.close(descriptor)
            if self._users is not None:
                self._users.close_others(user)
            wakes, _ = wake_up_pipe()
            ScriptSupervisor(control, outputs, user, wakes).run()
            code = 0
        except BaseException:  # noqa: BLE001 -- a supervisor must never return into the fork server's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._supervisors:
                continue  # a process that a killed supervisor left behind
            user = self._supervisors.pop(pid)
            if status != 0:
                self._clear_up(user)
            if self._users is not None and user is not None:
                self._users.give_back(user)

    def _clear_up(self, user: int | None) -> None:
        """Kills the processes of a lost supervisor: all our descendants except the supervisors and their processes."""
        while LINUX and descendants(os.getpid(), self._supervisors):
            if user is None or not end_all_of(user):
                end_descendants(frozenset(self._supervisors))
            for pid in descendants(os.getpid(), self._supervisors):
                _collect(pid)
            time.sleep(0.001)


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not our child yet: its parent has not ended yet


def main(descriptor: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    become_subreaper()
    sys.stdout = sys.stderr
    ForkServer(become_fork_server(descriptor)).run()
