"""Tests of generated clients are skipped if a package registry does not respond, and for no other reason."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import socket
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from toolchain import NODE_LOCK, RegistryUnreachable, npm_ci, pip_install

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yields a URL where no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


class Registry(BaseHTTPRequestHandler):
    """A registry with two versions of one package, and their correct hashes."""

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}/"
        if self.path.endswith(".tgz"):
            answer = PACKED
        else:
            dist = {"tarball": f"{url}pinned.tgz", "integrity": INTEGRITY}
            versions = {v: {"name": "pinned", "version": v, "dist": dist} for v in VERSIONS}
            answer = json.dumps(
                {"name": "pinned", "dist-tags": {"latest": VERSIONS[-1]}, "versions": versions}
            ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def packed() -> bytes:
    file, content = io.BytesIO(), json.dumps({"name": "pinned", "version": VERSIONS[0]}).encode()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        info = tarfile.TarInfo("package/package.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


VERSIONS = ("1.0.0", "2.0.0")
PACKED = packed()
INTEGRITY = f"sha512-{base64.b64encode(hashlib.sha512(PACKED).digest()).decode()}"


@pytest.fixture
def registry() -> Iterator[str]:
    """Yields the URL of a registry on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def project_of(folder: Path, wanted: str = VERSIONS[0], integrity: str = INTEGRITY) -> Path:
    """A project with one package, whose first version is locked like those of the generated clients."""
    project = folder / "project"
    project.mkdir()
    own = {"name": "project", "version": "1.0.0", "dependencies": {"pinned": wanted}}
    locked = {"": {**own, "dependencies": {"pinned": VERSIONS[0]}}}
    locked["node_modules/pinned"] = {"version": VERSIONS[0], "integrity": integrity}
    (project / "package.json").write_text(json.dumps(own))
    (project / "package-lock.json").write_text(
        json.dumps({"name": "project", "lockfileVersion": 3, "packages": locked})
    )
    return project


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def install(node: Path, project: Path, into: Path, registry: str) -> None:
    cache = str(into / "cache")
    npm_ci(node, project, into, registry=registry, cache=cache, noproxy="127.0.0.1", fetch_retries="0")


def test_a_missing_npm_registry_is_a_skip(node: Path, tmp_path: Path, into: Path, nobody: str) -> None:
    with pytest.raises(RegistryUnreachable, match="ECONNREFUSED"):
        install(node, project_of(tmp_path), into, nobody)


def test_a_package_that_is_not_the_pinned_one_is_an_error(
    node: Path, tmp_path: Path, into: Path, registry: str
) -> None:
    project = project_of(tmp_path, integrity=f"sha512-{'A' * 86}==")
    with pytest.raises(RuntimeError, match="EINTEGRITY"):
        install(node, project, into, registry)


def test_a_lock_that_does_not_fit_its_package_is_an_error(
    node: Path, tmp_path: Path, into: Path, registry: str
) -> None:
    project = project_of(tmp_path, wanted=VERSIONS[1])
    with pytest.raises(RuntimeError, match="EUSAGE"):
        install(node, project, into, registry)


def pip_settings(**settings: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {**others, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", **settings}


def test_a_missing_package_index_is_a_skip(into: Path, nobody: str) -> None:
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
