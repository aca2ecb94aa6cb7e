"""An app with functions for tests, in the worker's process and in child processes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from duetime.functions.context import Context, Reject, Retry, current
from duetime.functions.registry import Registry

APP = f"{__file__}:app"


class App:
    def __init__(self) -> None:
        self.registry = Registry()


app = App()


def job(function: Any) -> Any:
    app.registry.register(function, function.__name__)
    return function


@job
def nothing() -> None:
    return


@job
def add(a: int, b: int = 0) -> int:
    return a + b


@job
def pid() -> int:
    return os.getpid()


@job
def fail(message: str) -> None:
    raise ValueError(message)


@job
def leave(code: int) -> None:
    sys.exit(code)


@job
def retry_later() -> None:
    raise Retry(after_seconds=90, message="the other side is busy")


@job
def reject() -> None:
    raise Reject("no such customer")


@job
def unserialisable() -> object:
    return object()


@job
def large() -> str:
    return "x" * 20_000


@job
def step(context: Context) -> Any:
    """Adds one step to the progress of the previous attempt."""
    before = context.progress
    context.save_progress({"step": (before or {"step": 0})["step"] + 1})
    return before


@job
def speak(context: Context) -> None:
    context.log("one", 1)
    logging.getLogger("shop").error("two %s", "%")
    current().log("three")


@job
def shout() -> None:
    os.write(1, b"from the system\n")
    subprocess.run([sys.executable, "-c", "import sys; print('from a child', file=sys.stderr)"], check=True)
    sys.stdout.write("from Python\n")


@job
def chatter(context: Context, lines: int) -> None:
    for _ in range(lines):
        context.log("x" * 1000)


@job
def sleep_long(mark: str, context: Context) -> None:
    """Writes its process id to a file, and runs until it is stopped or killed."""
    Path(mark).write_text(str(os.getpid()))
    while not context.cancelled:
        time.sleep(0.01)


@job
def ignore_all(mark: str, until: str) -> None:
    """Ignores SIGTERM and `context.cancelled`."""
    if os.environ.get("DUETIME_TEST_CHILD"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(mark).write_text(str(os.getpid()))
    while not Path(until).exists():
        time.sleep(0.01)


@job
def start_another(mark: str) -> None:
    """Starts a process, and waits."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(mark).write_text(f"{os.getpid()} {process.pid}")
    process.wait()
