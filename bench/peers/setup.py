"""Installs what the peers need, once: the `.peers` virtual environment and pg-boss's node_modules."""

from __future__ import annotations

import shutil
import subprocess

from bench.processes import ROOT
from bench.results import Skipped

VENV = ROOT / ".peers"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements" / "peers.lock"
PGBOSS = ROOT / "bench" / "peers" / "pgboss"


def python_peers() -> None:
    """Make `.peers` from the lock file, again whenever the lock file is newer."""
    stamp = VENV / ".installed"
    if stamp.exists() and stamp.stat().st_mtime >= LOCK.stat().st_mtime:
        return
    print("installing the Python peers into .peers …", flush=True)
    _run("python3", "-m", "venv", str(VENV))
    _run(
        *(str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "-r", str(LOCK)),
    )
    stamp.touch()


def pgboss() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Skipped("pg-boss needs node and npm, which are not on this machine")
    stamp = PGBOSS / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= (PGBOSS / "package-lock.json").stat().st_mtime:
        return
    print("installing pg-boss …", flush=True)
    _run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(PGBOSS))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, cwd=ROOT, timeout=600, stdout=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError) as error:
        raise Skipped(f"{command[0]} could not install the peer: {error}") from error
