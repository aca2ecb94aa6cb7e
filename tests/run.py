"""Runs the checks and the tests part by part. A part that fails stops no other; the summary names what failed.

python tests/run.py test|check|hard [--seed NUMBER] [further arguments of pytest]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

BIN = Path(sys.executable).parent
NO_TESTS = 5  # pytest's exit code if it selected no tests
INTERRUPTED = 130
MEMORY = Path("/dev/shm")
LEAST_MEMORY_BYTES = 8 << 30
MODES = ("test", "check", "hard")
FAST = ("unit", "metrics", "engine", "docs", "contract")  # folders of `make check`, which takes 90 seconds at most

# Hogs and the writer end with their parent, also when it is killed. They get its process id as an argument: it may have
# ended before they could read it.
HOG = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""
WRITER = """
import os, sys
page, place = os.urandom(1 << 20), 0
with open(sys.argv[2], "wb", buffering=0) as file:
    while os.getppid() == int(sys.argv[1]):
        file.seek(place % 64 << 20)
        file.write(page)
        os.fsync(file.fileno())
        place += 1
"""


@dataclass
class Part:
    """One command. It has passed with one of the exit codes `codes`."""

    name: str
    command: list[str]
    codes: tuple[int, ...] = (0,)
    code: int | None = None
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.code in self.codes

    @property
    def end(self) -> str:
        if self.code is None:
            return "not run"
        if not self.passed:
            return f"FAILED (exit code {self.code})"
        return "no tests of this kind" if self.code == NO_TESTS else "ok"


def checks() -> list[Part]:
    return [
        Part("style", [str(BIN / "ruff"), "check", "."]),
        Part("format", [str(BIN / "ruff"), "format", "--check", "."]),
        Part("types", [str(BIN / "mypy")]),
        Part("layers", [str(BIN / "lint-imports")]),
        Part("secrets", [sys.executable, str(Path(__file__).with_name("scan.py"))]),
    ]


def _tests(name: str, marks: str, *arguments: str) -> Part:
    command = [sys.executable, "-m", "pytest", "-rs", "-m", f"not soak and {marks}", *arguments]
    return Part(name, command, (0, NO_TESTS))


SIDE_BY_SIDE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")


def tests(arguments: Sequence[str]) -> list[Part]:
    """First the tests that can run side by side, then clusters, then those that run alone (tests/conftest.py)."""
    return [
        _tests("side by side", "not alone and not cluster", *SIDE_BY_SIDE, *arguments),
        _tests("clusters", "cluster", "-n", "5", "--dist", "worksteal", *arguments),
        _tests("alone", "alone", *arguments),
    ]


def fast_tests(arguments: Sequence[str]) -> list[Part]:
    """Without those on PostgreSQL, unless `arguments` choose tests by name."""
    chosen = arguments if "-k" in arguments else ("-k", "not postgres", *arguments)
    folders = [str(Path(__file__).with_name(folder)) for folder in FAST]
    return [_tests("fast tests", "not slow", *SIDE_BY_SIDE, *chosen, *folders)]


def run(part: Part, environment: dict[str, str]) -> None:
    say(f"\n== {part.name}: {' '.join(part.command)}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        failed = Path(folder, "failed")
        process = subprocess.Popen(
            part.command, env={**environment, "DUETIME_TEST_PART": part.name, "DUETIME_TEST_FAILED": str(failed)}
        )
        try:
            part.code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            part.seconds = time.monotonic() - begun
            part.failed = failed.read_text().splitlines() if failed.exists() else []


def summary(parts: Sequence[Part]) -> str:
    lines = ["", "== summary"]
    for part in parts:
        minutes, seconds = divmod(round(part.seconds), 60)
        lines.append(f"{part.name:<14}{minutes:>3}:{seconds:02}  {part.end}")
        lines += [f"    {name}" for name in part.failed]
    return "\n".join(lines)


@contextmanager
def busy_machine() -> Iterator[None]:
    """A process that loads each core, and a writer that keeps the disk of the temporary files syncing."""
    with tempfile.TemporaryDirectory() as folder:
        parent = str(os.getpid())
        commands = [[sys.executable, "-c", HOG, parent]] * (os.cpu_count() or 1)
        commands.append([sys.executable, "-c", WRITER, parent, str(Path(folder, "written"))])
        processes: list[subprocess.Popen[bytes]] = []
        try:
            processes += [subprocess.Popen(command) for command in commands]
            yield
            ended = [process.args for process in processes if process.poll() is not None]
            if ended:
                raise SystemExit(f"the machine was not kept busy to the end: {ended} ended by itself")
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def files_in_memory() -> Iterator[dict[str, str]]:
    """Returns the variables that put temporary files into memory, if there is enough: files on a disk are slow.

    No test needs files that survive a power cut. `make hard-test` runs on the disk.
    """
    if not _is_roomy(MEMORY):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="duetime-", dir=MEMORY) as folder:
        os.chmod(folder, 0o1777)  # like /tmp: scripts run as other users
        yield {"TMPDIR": folder}


def _is_roomy(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    can_execute = not found.f_flag & os.ST_NOEXEC  # tests run scripts from there
    return can_execute and found.f_bavail * found.f_frsize >= LEAST_MEMORY_BYTES


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def end(signum: int, _: object) -> NoReturn:
    raise SystemExit(128 + signum)


def run_all(parts: Sequence[Part], environment: dict[str, str]) -> int:
    try:
        for part in parts:
            run(part, environment)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        say(summary(parts))
    return 0 if all(part.passed for part in parts) else 1


def run_hard(arguments: list[str], environment: dict[str, str]) -> int:
    """All tests on a busy machine, in an order and with examples that the seed chooses."""
    seed = random.randrange(2**32)
    if arguments[:1] == ["--seed"]:
        seed, arguments = int(arguments[1]), arguments[2:]
    say(f"seed {seed}; the same again: make hard-test SEED={seed}")
    parts = tests([f"--hypothesis-seed={seed}", *arguments])
    try:
        with busy_machine():
            return run_all(parts, {**environment, "DUETIME_TEST_SEED": str(seed)})
    finally:
        say(f"seed {seed}")


def main(arguments: Sequence[str]) -> int:
    what, *others = arguments or [""]
    if what not in MODES:
        say(str(__doc__))
        return 2
    signal.signal(signal.SIGTERM, end)
    environment = dict(os.environ)
    # Nodes are started hundreds of times: without this, each would compile all of Duetime.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if what == "hard":
        return run_hard(others, environment)
    with files_in_memory() as variables:
        parts = tests(others) if what == "test" else fast_tests(others)
        return run_all([*checks(), *parts], environment | variables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
