"""How many files of Duetime an execution's way leads through: calls from one file to another, on four walks.

    python -m bench.walks [CHECKOUT] [--show]

The walks of one job at a time, on a node with SQLite in a temporary folder:

    create    from the first byte of POST /api/v1/jobs to the commit of the job's row
    fire      from the due time of a webhook job to the bytes of the request that are handed to the socket
    record    from the bytes of the target's response to the commit of the attempt's end
    function  from `app.enqueue(function)` to the commit of its result, in an embedded app: the job is created, fired,
              claimed by the worker of the app, called, reported and recorded

How it counts. `sys.setprofile` reports each call in each thread. A call counts if the function is in a file of
src/duetime, and the nearest function of src/duetime that leads to it is in another file; functions of other packages
between the two are skipped. So a call through `asyncio.to_thread` or a router is a call between the files at its ends.
A coroutine counts where it is awaited, once, and not each time it goes on. What the event loop or a new thread calls
(a task, a callback) has no caller, and does not count. Imports and class bodies do not count.

Each walk is walked many times, after a warm-up. Of each pair of functions the median number of calls counts, so that
what services do at the same time by chance (heartbeats, housekeeping) does not. The begin and the end of a walk are
found where they are the same in every version: in the time, in calls of sockets, and in the SQL that is carried out.
So an older CHECKOUT can be counted, with its own .venv.

uvloop is replaced by asyncio's own loop, whose calls of sockets can be seen. The counts are of calls, not of time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dis
import http.client
import inspect
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

WALKS = ("create", "fire", "record", "function")
ROUNDS = 15  # of each walk
WARM_ROUNDS = 3
APART_SECONDS = 1.3  # between two due times: what is read ahead for one is not of the walk of another
PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.05  # between two looks at whether a walk has ended
# What one step causes in other threads must not count in the walk of the next step. No version has an event for that.
ACCEPTED_SECONDS = 0.05  # the node accepts a connection
SENT_SECONDS = 0.02  # the node goes on after it has sent a request, before it gets the response
REST_SECONDS = 0.3  # the worker of an app reports, and polls again
CREATED, ENDED = "INSERT INTO jobs ", "INSERT INTO attempts "  # in the SQL of a commit
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_INNER = {"<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Crossing(NamedTuple):
    """A call from a function in one file to a function in another. `line` is where the second one is defined."""

    caller_file: str
    caller: str
    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.caller_file} {self.caller} -> {self.file}:{self.line} {self.function}"


# What runs in the node's process


class Watcher:
    """Notes all crossings, and the marks of a walk, in the order in which they happen."""

    def __init__(self, source: Path) -> None:
        self._source = f"{source}{os.sep}"
        self._files: dict[CodeType, str | None] = {}
        self._begins: dict[CodeType, int] = {}  # where a function begins; beyond, a coroutine goes on
        self._noted: list[tuple[float, Crossing | str]] = []
        self._begun_sql: dict[Any, str] = {}  # by connection: the SQL since its transaction began
        self.target_port = 0

    def start(self) -> None:
        import apsw

        apsw.connection_hooks.append(self._watch)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def note(self, mark: str) -> None:
        self._noted.append((time.time(), mark))

    def take(self) -> list[tuple[float, Crossing | str]]:
        noted, self._noted = self._noted, []
        return noted

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            file = self._file_of(frame.f_code)
            if file is not None and frame.f_lasti <= self._begins[frame.f_code]:
                self._note_call(frame, file)
        elif event == "c_call" and arg.__name__ in ("send", "sendmsg") and self._leads_to_target(arg):
            self.note("sent")
        elif event == "c_return" and arg.__name__ in ("recv", "recv_into") and self._leads_to_target(arg):
            self.note("received")

    def _note_call(self, frame: FrameType, file: str) -> None:
        code, back = frame.f_code, frame.f_back
        while back is not None:
            caller = self._file_of(back.f_code)
            if caller is not None:
                if caller != file:
                    crossing = Crossing(caller, back.f_code.co_qualname, file, code.co_qualname, code.co_firstlineno)
                    self._noted.append((time.time(), crossing))
                return
            if back.f_code.co_name == "_run_once" and "asyncio" in back.f_code.co_filename:
                return
            back = back.f_back

    def _file_of(self, code: CodeType) -> str | None:
        """Below src/duetime; None for code of other packages, and for parts of a function or a module."""
        try:
            return self._files[code]
        except KeyError:
            is_ours = code.co_filename.startswith(self._source) and code.co_name not in _INNER
            file = self._files[code] = code.co_filename.removeprefix(self._source) if is_ours else None
            if is_ours:
                self._begins[code] = _begin_of(code)
            return file

    def _leads_to_target(self, function: Any) -> bool:
        connection = getattr(function, "__self__", None)
        if not self.target_port:
            return False
        if not isinstance(connection, socket.socket) and type(connection).__name__ != "socket":
            return False
        with contextlib.suppress(OSError, IndexError, TypeError):
            return bool(connection.getpeername()[1] == self.target_port)
        return False

    def _watch(self, connection: Any) -> None:
        """Called for each new connection of SQLite."""
        connection.exec_trace = self._note_sql

    def _note_sql(self, cursor: Any, sql: str, _: Any) -> bool:
        key = id(getattr(cursor, "connection", cursor))
        if sql.startswith("BEGIN"):
            self._begun_sql[key] = ""
        elif sql == "COMMIT":
            written = self._begun_sql.pop(key, "")
            for mark, text in (("created", CREATED), ("ended", ENDED)):
                if text in written:
                    self.note(mark)
        elif key in self._begun_sql:
            self._begun_sql[key] += sql
        return True


def _begin_of(code: CodeType) -> int:
    """The last instruction at which a function stands when it is called, and not resumed."""
    if not code.co_flags & _GENERATORS:
        return len(code.co_code)
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


def count_served(watcher: Watcher, folder: Path) -> dict[str, list[list[Crossing]]]:
    """The walks of a webhook job, over HTTP. The node has the main thread, as it needs signals; this is the other."""
    found: dict[str, list[list[Crossing]]] = {"create": [], "fire": [], "record": []}
    failure: list[BaseException] = []

    def drive() -> None:
        sys.setprofile(None)
        try:
            with _target() as target:
                port = _served_port()
                watcher.target_port = target
                for number in range(WARM_ROUNDS + ROUNDS):
                    walks = _walk_webhook(watcher, port, target)
                    if number >= WARM_ROUNDS:
                        for name, walk in walks.items():
                            found[name].append(walk)
        except BaseException as error:
            failure.append(error)
            raise
        finally:
            os.kill(os.getpid(), 15)

    driver = threading.Thread(target=drive)
    driver.start()
    from duetime.cli.main import main

    reader, writer = os.pipe()
    _said.append(reader)
    os.dup2(writer, 1)
    sys.argv = ["duetime", "serve", "--port", "0", "--data", str(folder / "data"), "--json"]
    sys.argv += ["--allow-private-targets", "127.0.0.0/8", "--log-level", "error"]
    watcher.start()
    with contextlib.suppress(SystemExit):
        main()
    sys.setprofile(None)
    driver.join()
    if failure:
        raise failure[0]
    return found


_said: list[int] = []  # the pipe that the node says its URL to


def _served_port() -> int:
    deadline = time.time() + PATIENCE_SECONDS
    while not _said:
        if time.time() > deadline:
            raise RuntimeError("the node did not start")
        time.sleep(LOOK_SECONDS)
    with open(_said[0]) as said:
        return int(json.loads(said.readline())["url"].rpartition(":")[2])


def _wait_for_end(watcher: Watcher, otherwise: str) -> None:
    deadline = time.time() + PATIENCE_SECONDS
    while not any(mark == "ended" for _, mark in watcher._noted):
        if time.time() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(LOOK_SECONDS)


def _walk_webhook(watcher: Watcher, port: int, target: int) -> dict[str, list[Crossing]]:
    due_at = round(time.time() + APART_SECONDS, 2)
    schedule = datetime.fromtimestamp(due_at, UTC).isoformat(timespec="milliseconds")
    job = {"name": "walk", "schedule": schedule, "payload": {"url": f"http://127.0.0.1:{target}/hook"}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.connect()
    time.sleep(ACCEPTED_SECONDS)
    watcher.take()
    watcher.note("asked")
    connection.request("POST", "/api/v1/jobs", json.dumps(job))
    if (status := connection.getresponse().status) != 201:
        raise RuntimeError(f"the job was answered with {status}, not 201")
    connection.close()
    _wait_for_end(watcher, "the job was due, and no attempt was recorded")
    noted = watcher.take()
    marks = [mark if isinstance(mark, str) else "" for _, mark in noted]
    due = next(place for place, (at, _) in enumerate(noted) if at >= due_at)
    sent = marks.index("sent")
    received = marks.index("received", sent)
    return {
        "create": _crossings(noted[: marks.index("created")]),
        "fire": _crossings(noted[due:sent]),
        "record": _crossings(noted[received : marks.index("ended", received)]),
    }


def count_embedded(watcher: Watcher, folder: Path) -> dict[str, list[list[Crossing]]]:
    from duetime import Duetime

    app = Duetime(f"sqlite:///{folder / 'data'}")

    @app.job(name="walk")
    def walk(number: int) -> int:
        return number + 1

    walks: list[list[Crossing]] = []
    watcher.start()
    with app:
        for number in range(WARM_ROUNDS + ROUNDS):
            time.sleep(REST_SECONDS)
            watcher.take()
            app.enqueue(walk, number)
            _wait_for_end(watcher, "the function was enqueued, and no end was recorded")
            noted = watcher.take()
            marks = [mark if isinstance(mark, str) else "" for _, mark in noted]
            if number >= WARM_ROUNDS:
                walks.append(_crossings(noted[: marks.index("ended")]))
        sys.setprofile(None)
    return {"function": walks}


def _crossings(noted: Sequence[tuple[float, Crossing | str]]) -> list[Crossing]:
    return [what for _, what in noted if isinstance(what, Crossing)]


@contextlib.contextmanager
def _target() -> Iterator[int]:
    class Target(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            sys.setprofile(None)
            super().setup()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            time.sleep(SENT_SECONDS)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def main_of_child(part: str) -> None:
    sys.modules["uvloop"] = _asyncio_as_uvloop()
    import duetime

    watcher = Watcher(Path(duetime.__file__).parent)
    out = os.dup(1)
    with tempfile.TemporaryDirectory(prefix="duetime-walks-") as folder:
        count: Callable[[Watcher, Path], dict[str, list[list[Crossing]]]]
        count = count_served if part == "served" else count_embedded
        found = count(watcher, Path(folder))
    os.write(out, json.dumps(found).encode())


def _asyncio_as_uvloop() -> ModuleType:
    module: Any = ModuleType("uvloop")
    module.new_event_loop = asyncio.new_event_loop
    module.EventLoopPolicy = asyncio.DefaultEventLoopPolicy
    module.install = lambda: None
    return module


# What reports


def typical(walks: Sequence[Sequence[Crossing]]) -> list[Crossing]:
    """The calls of a typical walk: of each call the median number, in the order of one of the walks."""
    counts = [Counter(walk) for walk in walks]
    left = Counter(
        {crossing: statistics.median_low([count[crossing] for count in counts]) for crossing in set().union(*counts)}
    )
    total = left.total()
    found: list[Crossing] = []
    # The walk that has most of these calls shows their order.
    for crossing in max(walks, key=lambda walk: (Counter(walk) & left).total()):
        if left[crossing]:
            left[crossing] -= 1
            found.append(crossing)
    found += left.elements()
    assert len(found) == total
    return found


def count_checkout(checkout: Path) -> dict[str, list[Crossing]]:
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: run `make setup` in {checkout}")
    found: dict[str, list[Crossing]] = {}
    for part in ("served", "embedded"):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
        ended = subprocess.run(
            [str(python), str(Path(__file__).resolve()), "--child", part], cwd=tempfile.gettempdir(),
            env=environment | {"DUETIME_METRICS_PORT": "0"}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        for name, walks in json.loads(ended.stdout).items():
            found[name] = typical([[Crossing(*crossing) for crossing in walk] for walk in walks])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--show", action="store_true", help="print each call")
    parser.add_argument("--child", choices=("served", "embedded"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        main_of_child(options.child)
        return
    found = count_checkout(options.checkout.resolve())
    for name in WALKS:
        if options.show:
            print(f"\n{name}")
            for number, crossing in enumerate(found[name], 1):
                print(f"  {number:3} {crossing}")
    print(f"{'walk':<10}{'calls across files':>20}{'pairs of files':>16}{'files':>8}")
    for name in WALKS:
        pairs = {(crossing.caller_file, crossing.file) for crossing in found[name]}
        files = {file for pair in pairs for file in pair}
        print(f"{name:<10}{len(found[name]):>20}{len(pairs):>16}{len(files):>8}")


if __name__ == "__main__":
    main()
