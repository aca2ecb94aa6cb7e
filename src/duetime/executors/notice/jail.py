"""What the child process of a notice may do: connect to the proxy of its node, and read Python's own files.

A hook of the interpreter's audit sees every connection, every opened file and every new process, also from C, and can't
be removed. So a plugin that opens a socket of its own, reads an attachment from the disk, logs to syslog or starts a
program is refused, whichever library it uses for that. Runs in the child only; stdlib only.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import sysconfig
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

LOOPBACK = "127.0.0.1"
HELLO_NAME = "duetime.invalid"  # for SMTP: the machine's own name is nobody's business
MOST_DESCRIPTORS = 64
MOST_HEAD_BYTES = 4096
_CPU_SECONDS = 20

# Events beginning so are refused, except those that are named below.
_GUARDED = (
    "socket.", "subprocess.", "os.", "shutil.", "syslog.", "pty.", "fcntl.", "ctypes.", "tempfile.", "sqlite3.",
    "webbrowser.", "mmap.", "signal.pthread_kill", "resource.", "urllib.",
)  # fmt: skip
_HARMLESS = frozenset({
    "socket.__new__", "socket.gethostname", "os.putenv", "os.unsetenv", "os.listdir", "os.scandir", "os.walk",
    "os.fwalk", "mmap.__new__",
})  # fmt: skip
_ADDRESSES = frozenset({
    "socket.bind", "socket.sendto", "socket.sendmsg", "socket.gethostbyname", "socket.gethostbyaddr",
    "socket.getnameinfo", "socket.getservbyname", "socket.getservbyport", "socket.sethostname",
})  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Jail:
    """`refused`: what was tried first that is not allowed; empty if nothing was."""

    def __init__(self, port: int, token: str, readable: Iterable[str]) -> None:
        self.refused = ""
        self._proxy = LOOPBACK, port
        self._token = token
        self._folders = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in readable if folder)
        self._connect = socket.create_connection

    def close(self) -> None:
        """Closes the jail behind this process, for good."""
        socket.create_connection = self._tunnel  # type: ignore[assignment]
        socket.getfqdn = lambda name="": HELLO_NAME
        sys.addaudithook(self._check)

    def _check(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._check_file(*args)
        elif event == "socket.connect":
            if tuple(args[1][:2]) != self._proxy if isinstance(args[1], tuple) else True:
                self._refuse("connect to an address by itself")
        elif event == "socket.getaddrinfo":
            if args[0] not in (LOOPBACK, LOOPBACK.encode()):
                self._refuse("look up a name by itself")
        elif event in _ADDRESSES:
            self._refuse("connect to an address by itself")
        elif event.startswith(_GUARDED) and event not in _HARMLESS:
            self._refuse(f"use the machine that the node runs on ({event})")

    def _check_file(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):  # a descriptor that is open already
            return
        if isinstance(flags, int) and flags & _WRITING:
            self._refuse("write a file")
        if path is not None and not os.path.realpath(os.fsdecode(path)).startswith(self._folders):
            self._refuse("read a file")

    def _refuse(self, what: str) -> None:
        self.refused = self.refused or what
        raise PermissionError(f"an alert channel may not {what}")

    def _tunnel(
        self, address: tuple[str, int], timeout: Any = None, source_address: Any = None, *, all_errors: bool = False
    ) -> socket.socket:
        """Replaces `socket.create_connection`: connects through the proxy. (SMTP does; HTTP knows proxies itself.)"""
        host, port = address
        connection = self._connect(self._proxy, timeout if isinstance(timeout, int | float) else None)
        try:
            self._ask(connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _ask(self, connection: socket.socket, authority: str) -> None:
        proof = b64encode(f"duetime:{self._token}".encode()).decode()
        connection.sendall(
            f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic {proof}\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = connection.recv(1)  # by one: the bytes after the head belong to the target
            if not part or len(head) > MOST_HEAD_BYTES:
                raise ConnectionError("the proxy closed the connection")
            head += part
        if head.split(b" ", 2)[1] != b"200":
            raise ConnectionError("the proxy refused the connection")


def limit_process(seconds: float, memory_bytes: int) -> None:
    """Sets the limits of this process, which the kernel enforces."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.umask(0o077)
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_NOFILE, MOST_DESCRIPTORS),
    ):
        hard = resource.getrlimit(which)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (limit, limit))


def python_folders(*modules: Any) -> list[str]:
    """Returns the folders that modules are imported from: the standard library, and those of these packages."""
    paths = sysconfig.get_paths()
    packages = [os.path.dirname(os.path.dirname(module.__file__)) for module in modules]
    return [paths["stdlib"], paths["platstdlib"], *packages]
