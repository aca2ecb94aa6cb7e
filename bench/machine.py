"""Facts about the machine that figures can't be read without."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path

import apsw
import msgspec


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    memory_gb: float
    system: str
    python: str
    sqlite: str
    syncs_per_second: float
    disturbed: float  # the largest share of the machine that others used before a measurement

    def lines(self) -> list[str]:
        return [
            "## The machine",
            "",
            f"- {self.cores} cores, {self.processor}; {self.memory_gb:.0f} GB of memory; {self.system}",
            f"- Python {self.python}, SQLite {self.sqlite}",
            f"- {self.syncs_per_second:,.0f} synced 4 kB writes a second in the folder used",
            f"- just before a measurement, other work used at most {self.disturbed:.0%} of the machine",
        ]


def look(disturbed: float) -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        syncs_per_second=_syncs_per_second(),
        disturbed=disturbed,
    )


def busy_share(seconds: float = 0.5) -> float:
    """How much of the machine is in use while this harness rests, 0 to 1."""
    busy = Busy()
    time.sleep(seconds)
    return busy.share()


class Busy:
    """How much of the machine is in use from here on."""

    def __init__(self) -> None:
        self._ticks, self._started = _busy_ticks(), time.perf_counter()

    def share(self) -> float:
        spent = (_busy_ticks() - self._ticks) / os.sysconf("SC_CLK_TCK")
        return spent / (time.perf_counter() - self._started) / (os.cpu_count() or 1)


def _busy_ticks() -> int:
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + softirq + steal


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _syncs_per_second(count: int = 200) -> float:
    with tempfile.TemporaryFile() as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(b"\0" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - started)
