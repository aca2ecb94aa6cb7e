"""A real node that accepts jobs of every type, and the tools that generate clients from its /openapi.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.processes import Server
from toolchain import RegistryUnreachable, installed_generators, installed_node, installed_packages

HERE = Path(__file__).parent


def or_skipped(install: Callable[[], Path]) -> Path:
    """Returns the folder of the tool. Skips the test if no package registry responds."""
    try:
        return install()
    except RegistryUnreachable as error:
        pytest.skip(f"GENERATED CLIENTS WERE NOT TESTED: {error}")


@pytest.fixture(scope="session")
def generators() -> Path:
    """Returns the folder of openapi-python-client, with a Python for its clients."""
    return or_skipped(installed_generators)


@pytest.fixture(scope="session")
def node() -> Path:
    """Returns the folder of `node`, `npm` and `npx`."""
    return or_skipped(installed_node)


@pytest.fixture(scope="session")
def packages(node: Path) -> Path:
    """Returns `node_modules` with openapi-typescript, openapi-fetch and tsc."""
    return or_skipped(lambda: installed_packages(HERE))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("generated")
    databases = folder / "databases"
    databases.mkdir()
    settings = {"ALLOW_SCRIPTS": "true", "ALLOW_SQL": "true", "SQL_SQLITE_FOLDER": str(databases)}
    server = Server(folder / "node", **settings).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()
