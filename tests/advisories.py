"""Runs pip-audit to find known vulnerabilities of pinned dependencies. Run by `make release-check`.

python tests/advisories.py <pip-audit program> <lock file>...

It queries the package index over the network. If the index can't be reached, or pip-audit is missing, it prints SKIPPED
and exits with 0: the release was not checked, and the line says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UNREACHABLE = (
    "connectionerror", "connection error", "could not connect", "failed to establish", "max retries", "timed out",
    "name resolution", "name or service not known", "proxyerror", "connection refused", "network is unreachable",
)  # fmt: skip


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def skipped(why: str) -> int:
    say(f"SKIPPED: dependencies were NOT checked for known vulnerabilities: {why}")
    return 0


def check(program: str, lock: Path) -> int:
    command = [
        program, "--requirement", str(lock), "--require-hashes", "--disable-pip", "--format", "json",
        "--progress-spinner", "off",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return skipped(f"{program} can't be run ({error.strerror}); was there a package index to install it from?")
    if done.returncode == 0:
        say(f"{lock}: no known vulnerability")
        return 0
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        if any(sign in done.stderr.lower() for sign in UNREACHABLE):
            return skipped(f"the database of vulnerabilities can't be reached: {last}")
        say(f"{lock}: pip-audit failed with exit code {done.returncode}: {last}")
        return 1
    for found in dependencies:
        for known in found.get("vulns", ()):
            fixed = ", ".join(known.get("fix_versions", ())) or "no version yet"
            say(f"{lock}: {found['name']} {found.get('version', '?')} has {known['id']}; fixed in {fixed}")
    return 1


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        say(str(__doc__))
        return 2
    program, *locks = arguments
    return max(check(program, Path(lock)) for lock in locks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
