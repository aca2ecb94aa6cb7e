"""Requests that a fork server (tests/node_forks.py) runs `duetime`: one connection for each command.

As a program it replaces `duetime` in the path of a shell. It imports little, so that it starts in some milliseconds:

    python -I -S fork_request.py SOCKET ARGUMENTS…
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

LONGEST_REQUEST = 1 << 20


def send(
    address: object, args: Sequence[str], folder: object, environment: Mapping[str, str], descriptors: tuple[int, ...]
) -> tuple[int, socket.socket]:
    """Starts a command with these descriptors as its stdin, stdout and stderr.

    Returns its process id, and the connection on which its exit code arrives.
    """
    request = json.dumps({"args": list(args), "folder": str(folder), "environment": dict(environment)})
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(str(address))
        socket.send_fds(connection, [request.encode()], list(descriptors))
        return int(connection.recv(16)), connection
    except BaseException:
        connection.close()
        raise


def main() -> None:
    address, *args = sys.argv[1:]
    pid, connection = send(address, ["duetime", *args], os.getcwd(), os.environ, (0, 1, 2))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(connection.recv(16))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
