"""Attacks by those who may set up an alert channel, by services that it is sent to, and by others on the machine."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path

import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.guard import Guard
from duetime.executors.notice.apprise import MOST_CHILDREN, AppriseSender
from duetime.executors.notice.child import PROGRAM
from duetime.executors.notice.proxy import MOST_BYTES, MOST_CONNECTIONS, GuardProxy
from duetime.executors.notice.wire import Order
from duetime.executors.resolver import Resolver
from duetime.ports.executor import Outcome
from executors.hostile import Hostile
from executors.notices import MailServer, notice_attempt
from executors.test_ssrf import Names

TOKEN = "T0K3N"
# Tests stay on loopback, so 127.0.0.2 stands for a public address, and 127.0.0.1 for a forbidden one.
PUBLIC = (ip_network("127.0.0.2/32"),)
FAR = 60.0
UNCHECKED = frozenset({"json", "syslog", "rsyslog", "irc", "aprs", "vapid", "dbus", "mqtt", "file", "config", "macosx"})


class Service(Hostile):
    """A service that anyone may call, and that has turned on its callers."""

    away = ""

    async def do_away(self, _: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 307 Gone\r\nLocation: {self.away}\r\nContent-Length: 0\r\n\r\n".encode())
        return True


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is free on both addresses, and reserved by sockets that do not listen."""
    while True:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
            for bound in sockets:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sockets[0].bind(("127.0.0.1", 0))
            port = sockets[0].getsockname()[1]
            try:
                sockets[1].bind(("127.0.0.2", port))
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:
                    raise
                continue
            yield port
            return


@pytest.fixture
async def service(port: int) -> AsyncIterator[Service]:
    async with Service("127.0.0.2", port) as server:
        yield server


@pytest.fixture
async def canary(service: Service) -> AsyncIterator[Hostile]:
    """Listens on the forbidden address, at the port of the service. Nothing may connect."""
    async with Hostile("127.0.0.1", service.port) as server:
        yield server
        assert server.connections == 0


async def send(
    url: str, *, seconds: float = FAR, names: Names | None = None, schemes: frozenset[str] | None = None,
    memory_bytes: int | None = None,
) -> Outcome:  # fmt: skip
    options = {"schemes": schemes, "memory_bytes": memory_bytes}
    sender = AppriseSender(allow=PUBLIC, lookup=names, **{name: it for name, it in options.items() if it is not None})
    try:
        return await sender.send(url, notice_attempt(timeout_seconds=seconds), time.monotonic() + seconds)
    finally:
        await sender.stop()


# Addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"])
async def test_no_way_to_write_a_forbidden_address_reaches_it(canary: Hostile, host: str):
    outcome = await send(f"json://{host}:{canary.port}/ok")
    assert outcome.error_type in (ErrorType.BLOCKED_TARGET, ErrorType.CONNECTION_ERROR)


async def test_a_forbidden_address_is_refused_with_the_reason(canary: Hostile):
    outcome = await send(f"json://127.0.0.1:{canary.port}/{TOKEN}")
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert outcome.error_message == "127.0.0.1 is not a public address (loopback). Nothing was sent there."


async def test_a_name_of_a_forbidden_address_is_refused(canary: Hostile):
    outcome = await send(f"json://inside.example:{canary.port}/ok", names=Names(["127.0.0.1"]))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert "inside.example may not be called" in (outcome.error_message or "")


async def test_a_name_that_resolves_anew_leads_to_the_address_that_was_checked(service: Service, canary: Hostile):
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    assert await send(f"json://rebind.example:{service.port}/ok", names=names) == Outcome(http_status=200)
    assert len(service.received) == 1


async def test_a_redirect_to_a_forbidden_address_is_refused(service: Service, canary: Hostile):
    service.away = f"http://127.0.0.1:{canary.port}/latest/meta-data"
    outcome = await send(f"json://127.0.0.2:{service.port}/away")
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert len(service.received) == 1


async def test_a_redirect_to_a_name_of_a_forbidden_address_is_refused(service: Service, canary: Hostile):
    service.away = f"http://inside.example:{canary.port}/"
    outcome = await send(f"json://127.0.0.2:{service.port}/away", names=Names(["127.0.0.1"]))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET


async def test_mail_can_not_be_sent_through_a_forbidden_address():
    async with MailServer("127.0.0.1") as server:
        url = f"mailto://127.0.0.1:{server.port}?from=a@example.com&to=b@example.com&mode=insecure"
        outcome = await send(url)
        assert outcome.error_type is ErrorType.BLOCKED_TARGET
        assert not server.greeted_as


async def test_only_mail_may_use_the_ports_of_mail():
    outcome = await send("json://127.0.0.2:25/")
    assert outcome == Outcome(
        ErrorType.BLOCKED_TARGET, "Port 25 is not one that jobs may call. Nothing was sent there."
    )
    outcome = await send("mailto://127.0.0.2:25?from=a@example.com&to=b@example.com&mode=insecure")
    assert outcome == Outcome(ErrorType.CONNECTION_ERROR, "No connection to 127.0.0.2:25.")


# Plugins that open sockets or files of their own: even if the list of services allowed them


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("syslog://", "use the machine that the node runs on (syslog.openlog)"),
        ("rsyslog://127.0.0.2:{port}", "connect to an address by itself"),
        ("irc://127.0.0.2:{port}/%23alerts", "look up a name by itself"),
        ("vapid://user@example.com/ops@example.com?keyfile=/etc/passwd", "read a file"),
    ],
)
async def test_a_plugin_that_reaches_out_by_itself_is_stopped(canary: Hostile, service: Service, url: str, what: str):
    outcome = await send(url.format(port=service.port), schemes=UNCHECKED)
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert outcome.error_message == (
        f"The service tried to {what}, which no alert channel may. The message was not sent."
    )
    assert not service.connections


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "config://127.0.0.2", "dbus://", "macosx://", "mqtt://127.0.0.2/x"]
)
async def test_what_is_no_service_on_this_machine_is_no_service(url: str):
    assert (await send(url, schemes=UNCHECKED)).error_type is ErrorType.BLOCKED_TARGET


@pytest.mark.parametrize("url", ["syslog://", "irc://127.0.0.2", "file:///etc/passwd", "config://127.0.0.2", "own://x"])
async def test_a_service_that_is_not_listed_never_starts_a_child(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    outcome = await send(url)
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert "is not a service that alerts can be sent to here" in (outcome.error_message or "")


async def test_the_child_itself_refuses_a_service_that_is_not_listed(service: Service):
    outcome = await send(f"xml://127.0.0.2:{service.port}/ok", schemes=frozenset({"json"}))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert outcome.error_message == (
        "The service tried to use xml://, which no alert channel may. The message was not sent."
    )
    assert not service.connections


_TRIALS = """
import ctypes, json, os, shutil, socket, subprocess, sys, syslog, tempfile, urllib.request
from duetime.executors.notice.jail import Jail, python_folders
port, outside = int(sys.argv[1]), sys.argv[2]
jail = Jail(port, "token", python_folders())
jail.close()
def raw(kind, deed):
    with socket.socket(*kind) as own:
        return deed(own)
UDP, UNIX = (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_STREAM)
trials = {
    "read": lambda: open(outside).read(),
    "read by number of flags": lambda: os.open(outside, os.O_RDONLY),
    "read a link": lambda: open("/proc/self/environ").read(),
    "step out of a folder": lambda: open(os.path.dirname(os.__file__) + "/../../../../../../../.." + outside).read(),
    "write": lambda: open(outside, "w"),
    "append": lambda: os.open(outside, os.O_APPEND | os.O_WRONLY),
    "write beside a module": lambda: open(os.__file__ + ".new", "w"),
    "remove": lambda: os.remove(outside),
    "rename": lambda: os.rename(outside, outside + "2"),
    "chmod": lambda: os.chmod(outside, 0),
    "link": lambda: os.symlink(outside, "/tmp/x"),
    "copy": lambda: shutil.copy(outside, "/tmp/x"),
    "temporary": lambda: tempfile.mkstemp(dir="/tmp"),
    "connect": lambda: raw((), lambda own: own.connect(("127.0.0.1", port + 1))),
    "connect_ex": lambda: raw((), lambda own: own.connect_ex(("127.0.0.2", port))),
    "connect to a name": lambda: raw((), lambda own: own.connect(("localhost", port))),
    "connect over IPv6": lambda: raw((socket.AF_INET6,), lambda own: own.connect(("::1", port))),
    "connect to a file": lambda: raw(UNIX, lambda own: own.connect("/var/run/docker.sock")),
    "sendto": lambda: raw(UDP, lambda own: own.sendto(b"x", ("127.0.0.1", port))),
    "sendmsg": lambda: raw(UDP, lambda own: own.sendmsg([b"x"], [], 0, ("127.0.0.1", port))),
    "bind": lambda: raw((), lambda own: own.bind(("127.0.0.1", 0))),
    "getaddrinfo": lambda: socket.getaddrinfo("example.com", 80),
    "gethostbyname": lambda: socket.gethostbyname("example.com"),
    "gethostbyaddr": lambda: socket.gethostbyaddr("127.0.0.2"),
    "program": lambda: subprocess.run(["true"]),
    "system": lambda: os.system("true"),
    "fork": lambda: os.fork() or os._exit(0),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "kill": lambda: os.kill(os.getppid(), 0),
    "library": lambda: ctypes.CDLL("libc.so.6"),
    "syslog": lambda: syslog.syslog("x"),
    "file URL": lambda: urllib.request.urlopen("file://" + outside),
}
found = {}
for name, trial in trials.items():
    try:
        trial()
        found[name] = "done"
    except PermissionError as error:
        found[name] = "refused" if "alert channel" in str(error) else repr(error)
    except BaseException as error:
        found[name] = "refused" if "alert channel" in repr(error) else repr(error)
found["socket.create_connection"] = "done"
try:
    socket.create_connection(("127.0.0.2", port), 5)
except OSError as error:
    found["socket.create_connection"] = str(error)
print(json.dumps(found))
"""


async def test_whatever_a_plugin_tries_by_itself_is_refused(canary: Hostile, tmp_path: Path):
    outside = tmp_path / "secret"
    outside.write_text("secret")
    with socket.socket() as nobody:  # where the proxy would be: bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        found = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", _TRIALS, str(port), str(outside)], capture_output=True, check=True
        )
    tried = json.loads(found.stdout)
    assert "Connection refused" in tried.pop("socket.create_connection")
    assert {name: it for name, it in tried.items() if it != "refused"} == {}
    assert outside.read_text() == "secret"
    assert os.listdir(tmp_path) == ["secret"]


# Services that misbehave, and children that do


async def test_a_response_without_end_is_cut(service: Service):
    outcome = await send(f"json://127.0.0.2:{service.port}/endless?rto=50")
    assert outcome == Outcome(ErrorType.CONNECTION_ERROR, f"More than {MOST_BYTES} bytes were to be sent.")


async def test_a_response_that_drips_ends_with_the_attempt(service: Service):
    outcome = await send(f"json://127.0.0.2:{service.port}/drip/body?rto=50", seconds=4)
    assert outcome == Outcome(ErrorType.TIMEOUT, "The service did not answer in full within 4 s.")


async def test_a_child_that_is_killed_is_a_failure_that_is_tried_again(service: Service):
    sender = AppriseSender(allow=PUBLIC)
    url = f"json://127.0.0.2:{service.port}/hang?rto=50"
    running = asyncio.create_task(sender.send(url, notice_attempt(), time.monotonic() + FAR))
    await service.reached.wait()
    (child,) = sender.children
    os.kill(child.pid, signal.SIGKILL)
    outcome = await running
    await sender.stop()
    assert outcome == Outcome(
        ErrorType.INTERNAL_ERROR, "The process that sends it was killed, or used too much memory."
    )


async def test_a_child_that_needs_too_much_memory_is_a_failure(service: Service):
    outcome = await send(f"json://127.0.0.2:{service.port}/ok", memory_bytes=8 * 1024 * 1024)
    assert outcome.error_type is ErrorType.INTERNAL_ERROR
    assert not service.received


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_a_child_shows_no_secret_and_has_no_descriptor_of_the_node(service: Service, tmp_path: Path):
    held = os.open(tmp_path / "held", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)
    sender = AppriseSender(allow=PUBLIC)
    url = f"json://user:{TOKEN}@127.0.0.2:{service.port}/hang/{TOKEN}?rto=50"
    running = asyncio.create_task(sender.send(url, notice_attempt(), time.monotonic() + FAR))
    try:
        await service.reached.wait()
        (child,) = sender.children
        place = Path(f"/proc/{child.pid}")
        shown = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        assert TOKEN.encode() not in shown
        assert b"http://duetime:" not in shown  # the token of the proxy
        opened = [os.readlink(one) for one in (place / "fd").iterdir()]
        assert str(tmp_path / "held") not in opened
    finally:
        os.close(held)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await sender.stop()


async def test_a_child_whose_node_was_killed_ends_by_itself(service: Service):
    order = Order(
        f"json://127.0.0.2:{service.port}/ok?rto=50", "t", "b", "info", service.port, "token", 1.5, 2**29, ("json",), ""
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", PROGRAM, *sys.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    hanging = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)  # in place of the proxy
    port = hanging.sockets[0].getsockname()[1]
    assert child.stdin is not None
    child.stdin.write(order._replace(proxy_port=port).encode())
    child.stdin.close()
    assert await child.wait() == -signal.SIGALRM
    hanging.close()
    assert not service.connections


async def test_channels_of_a_tenant_that_hang_do_not_keep_those_of_another_waiting(service: Service):
    sender = AppriseSender(allow=PUBLIC)
    stuck = f"json://127.0.0.2:{service.port}/hang?rto=50"
    hostile = [
        asyncio.create_task(sender.send(stuck, notice_attempt(tenant="evil"), time.monotonic() + FAR))
        for _ in range(3 * MOST_CHILDREN)
    ]
    try:
        await service.reached.wait()
        victim = sender.send(f"json://127.0.0.2:{service.port}/ok", notice_attempt(), time.monotonic() + FAR / 3)
        assert await victim == Outcome(http_status=200)
        assert not any(task.done() for task in hostile)
        assert len(sender.children) <= MOST_CHILDREN
    finally:
        for task in hostile:
            task.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)
        await sender.stop()


# The proxy, and others on the machine


async def hung_up(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


class Proxied:
    def __init__(self, proxy: GuardProxy) -> None:
        self.proxy = proxy

    async def ask(self, head: str, token: str | None = None, then: bytes = b"") -> bytes:
        proof = b64encode(f"duetime:{token or self.proxy.token}".encode()).decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        writer.write(f"{head}\r\nProxy-Authorization: Basic {proof}\r\n\r\n".encode() + then)
        answer = await reader.read(65_536)
        writer.close()
        return answer


@pytest.fixture
async def proxied() -> AsyncIterator[Proxied]:
    guard = Guard(PUBLIC)
    resolver = Resolver(guard.check, Names(["127.0.0.1"]))
    async with GuardProxy(guard, resolver, "acme", lambda: True) as proxy:
        yield Proxied(proxy)
    await resolver.close()


async def test_the_proxy_serves_only_who_knows_its_token(proxied: Proxied, service: Service):
    answer = await proxied.ask(f"CONNECT 127.0.0.2:{service.port} HTTP/1.1", token="guessed")
    assert answer.startswith(b"HTTP/1.1 407 ")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.proxy.port)
    writer.write(f"GET http://127.0.0.2:{service.port}/ok HTTP/1.1\r\n\r\n".encode())
    assert (await reader.read()).startswith(b"HTTP/1.1 407 ")
    writer.close()
    assert not service.connections


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("CONNECT 127.0.0.1:{port} HTTP/1.1", b"403"),
        ("CONNECT [::1]:{port} HTTP/1.1", b"403"),
        ("CONNECT inside.example:{port} HTTP/1.1", b"403"),
        ("CONNECT 127.0.0.2:22 HTTP/1.1", b"403"),
        ("CONNECT 127.0.0.2 127.0.0.1 HTTP/1.1", b"400"),
        ("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.2", b"403"),
        ("GET http://127.0.0.2@127.0.0.1:{port}/ HTTP/1.1", b"403"),
        ("GET https://127.0.0.2:{port}/ HTTP/1.1", b"400"),
        ("GET file:///etc/passwd HTTP/1.1", b"400"),
        ("GET /ok HTTP/1.1", b"400"),
        ("nonsense", b"400"),
    ],
)
async def test_the_proxy_refuses_what_the_guard_refuses(proxied: Proxied, canary: Hostile, head: str, status: bytes):
    answer = await proxied.ask(head.format(port=canary.port))
    assert answer.split(b" ")[1] == status


async def test_a_second_request_on_a_connection_goes_where_the_first_one_was_allowed_to(
    proxied: Proxied, service: Service, canary: Hostile
):
    second = f"GET http://127.0.0.1:{canary.port}/ok HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    first = f"GET http://127.0.0.2:{service.port}/raw/close HTTP/1.1\r\nHost: 127.0.0.2"
    assert b"until the end" in await proxied.ask(first, then=second)


async def test_the_proxy_closes_what_is_too_much(proxied: Proxied):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.proxy.port)
    writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
    assert await reader.read() == b""
    writer.close()
    opened = [await asyncio.open_connection("127.0.0.1", proxied.proxy.port) for _ in range(MOST_CONNECTIONS)]
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.proxy.port)
    assert await hung_up(reader)
    for _, one in (*opened, (reader, writer)):
        one.close()


async def test_the_proxy_listens_only_while_it_is_needed(proxied: Proxied):
    guard = Guard(PUBLIC)
    async with GuardProxy(guard, Resolver(guard.check, Names(["127.0.0.1"])), "acme", lambda: True) as proxy:
        port = proxy.port
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
