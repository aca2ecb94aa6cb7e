"""Tests of generated clients are skipped when a package registry does not answer, and for no other reason."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolchain import NODE_LOCK, RegistryUnreachable, npm_ci, pip_install

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what is pinned."""
    project = tmp_path / "project"
    project.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, project)
    return project


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def test_npm_without_a_registry_is_told_apart(node: Path, project: Path, into: Path, nobody: str) -> None:
    with pytest.raises(RegistryUnreachable, match="ECONNREFUSED"):
        npm_ci(node, project, into, registry=nobody, cache=str(into / "cache"))


def change(file: Path, section: str, package: str, value: object) -> None:
    content = json.loads(file.read_text())
    content[section][package] = value
    file.write_text(json.dumps(content))


def error_of_npm_ci(node: Path, project: Path, into: Path) -> str:
    try:
        with pytest.raises(RuntimeError) as error:
            npm_ci(node, project, into)
    except RegistryUnreachable as error:
        pytest.skip(f"ERRORS OF NPM WERE NOT TESTED: {error}")
    return str(error.value)


def test_a_package_that_is_not_the_pinned_one_is_an_error(node: Path, project: Path, into: Path) -> None:
    package = json.loads((project / "package-lock.json").read_text())["packages"]["node_modules/ms"]
    other = {**package, "integrity": f"sha512-{'A' * 86}=="}
    change(project / "package-lock.json", "packages", "node_modules/ms", other)
    assert "EINTEGRITY" in error_of_npm_ci(node, project, into)


def test_a_lock_that_does_not_fit_its_package_is_an_error(node: Path, project: Path, into: Path) -> None:
    change(project / "package.json", "dependencies", "openapi-fetch", "0.16.0")
    assert "EUSAGE" in error_of_npm_ci(node, project, into)


def pip_settings(**settings: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {**others, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", **settings}


def test_pip_without_an_index_is_told_apart(into: Path, nobody: str) -> None:
    with pytest.raises(RegistryUnreachable, match=r"node\.lock"):
        pip_install(NODE_LOCK, [], ["--target", str(into)], pip_settings(PIP_INDEX_URL=nobody))


def test_a_package_that_the_index_does_not_have_is_an_error(into: Path) -> None:
    empty = into / "index"
    empty.mkdir()
    with pytest.raises(RuntimeError, match="No matching distribution"):
        pip_install(NODE_LOCK, [], ["--target", str(into)], pip_settings(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(empty)))


def test_the_lock_names_no_host_and_has_the_hash_of_every_package() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    own = packages.pop("")
    assert packages
    assert "resolved" not in {name for package in packages.values() for name in package}
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    pinned = own["dependencies"] | own["devDependencies"]
    assert pinned == {name: packages[f"node_modules/{name}"]["version"] for name in pinned}
