"""The fork server for SQLite: one process per node. It forks a child for each statement, and ends it on request.

A small process with one thread forks fast and safely; a node is large and has threads. The fork server has already
imported all modules that a child needs. For each statement the node sends two descriptors: the child's socket, and the
read end of a pipe that controls the child. A byte in the pipe asks the child to end, and closing the pipe kills the
child, so all statements of a node end if the node dies. The server closes its copy of the child's socket after it has
reaped the child, so the node sees that the child has ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import traceback
from contextlib import suppress
from typing import NamedTuple

from duetime.executors.script.system import become_fork_server, die_with_parent, receive_descriptors, wake_up_pipe
from duetime.executors.sql.sqlite_child import Ended, run
from duetime.executors.sql.sqlite_wire import ASK_TO_END, Died, frame

_DESCRIPTORS = 2
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from duetime.executors.sql.sqlite_server import main; main(int(sys.argv[1]))"
)


class _Child(NamedTuple):
    pid: int
    control: socket.socket
    orders: int


class ForkServer:
    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._children: dict[int, _Child] = {}  # by process id
        self._by_orders: dict[int, _Child] = {}
        self._poll = select.poll()
        self._wakes, self._wake = wake_up_pipe()

    def run(self) -> None:
        """Serves until the node has ended, then kills all children."""
        self._poll.register(self._node, select.POLLIN)
        self._poll.register(self._wakes, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._wakes in ready:
                os.read(self._wakes, 4096)
            for descriptor in ready:
                if child := self._by_orders.get(descriptor):
                    self._obey(child)
            self._reap()
            if self._node.fileno() in ready and not self._accept():
                break
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        while self._children:
            self._forget(*os.waitpid(-1, 0))

    def _accept(self) -> bool:
        """Handles one request. Returns False if the node has ended."""
        descriptors = receive_descriptors(self._node, _DESCRIPTORS)
        if descriptors is None:
            return False
        if not descriptors:
            return True
        control, orders = socket.socket(fileno=descriptors[0]), descriptors[1]
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(server, control, orders)
        child = _Child(pid, control, orders)
        self._children[pid] = self._by_orders[orders] = child
        self._poll.register(orders, select.POLLIN)
        return True

    def _become(self, server: int, control: socket.socket, orders: int) -> None:
        """Runs the child. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent(server, signal.SIGKILL)
            for descriptor in (self._wakes, self._wake, self._node.detach(), orders):
                os.close(descriptor)
            for other in self._children.values():
                other.control.close()
                os.close(other.orders)
            run(control)
            code = 0
        except (Ended, OSError):  # no process waits for the reply
            code = 0
        except BaseException:  # noqa: BLE001 -- a child must never return into the server's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _obey(self, child: _Child) -> None:
        order = os.read(child.orders, 1)
        if order == ASK_TO_END:
            os.kill(child.pid, signal.SIGTERM)
            return
        self._poll.unregister(child.orders)
        del self._by_orders[child.orders]
        os.kill(child.pid, signal.SIGKILL)  # safe: until the child is reaped, no other process can have its id

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._forget(pid, status)

    def _forget(self, pid: int, status: int) -> None:
        child = self._children.pop(pid)
        if self._by_orders.pop(child.orders, None) is not None:
            self._poll.unregister(child.orders)
        if status:
            with suppress(OSError):  # the node has closed its end
                child.control.send(frame(Died(status)), socket.MSG_DONTWAIT)
        child.control.close()
        os.close(child.orders)


def main(descriptor: int) -> None:
    ForkServer(become_fork_server(descriptor)).run()
