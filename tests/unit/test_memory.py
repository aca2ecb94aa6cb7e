from __future__ import annotations

from pathlib import Path

import pytest

from duetime.process.memory import memory_limit

MACHINE = 64_000


def limit(folder: Path, cgroup: str | None, files: dict[str, str]) -> int:
    """Sets the content of /proc/self/cgroup (None: no such file), and these files below /sys/fs/cgroup."""
    proc, groups = folder / "proc", folder / "groups"
    if cgroup is not None:
        (proc / "self").mkdir(parents=True)
        (proc / "self" / "cgroup").write_text(cgroup)
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    return memory_limit(proc, groups, MACHINE)


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        (None, {}, MACHINE),
        ("", {}, MACHINE),
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "5000\n"}, 5000),
        ("0::/\n", {"memory.max": "99999999\n"}, MACHINE),
        ("0::/a/b\n", {"a/b/memory.max": "5000", "a/memory.max": "7000"}, 5000),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "7000"}, 7000),
        ("0::/a/b\n", {"a/b/memory.max": "9000", "a/memory.max": "7000", "memory.max": "8000"}, 7000),
        ("0::/of/the/host\n", {"memory.max": "5000"}, 5000),
        ("0::/../../a\n", {"a/memory.max": "5000"}, 5000),
        ("0::/a b:c\n", {"a b:c/memory.max": "5000"}, 5000),
        ("0::/\n", {"memory.max": "no number"}, MACHINE),
        ("0::/\n", {"memory.max": "0"}, MACHINE),
        ("4:memory:/a\n1:cpu:/x\n", {"memory/a/memory.limit_in_bytes": "5000"}, 5000),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, MACHINE),
        ("4:memory:/a/b\n", {"memory/memory.limit_in_bytes": "5000"}, 5000),
        ("4:cpu,memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000"}, 5000),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "5000"}, MACHINE),
        ("nonsense", {"memory.max": "5000"}, MACHINE),
    ],
)
def test_the_lowest_limit_of_machine_and_groups_applies(
    tmp_path: Path, cgroup: str | None, files: dict[str, str], expected: int
) -> None:
    assert limit(tmp_path, cgroup, files) == expected


def test_the_memory_of_this_machine_is_found() -> None:
    assert memory_limit() > 1_048_576
