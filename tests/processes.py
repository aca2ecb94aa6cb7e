"""Child processes of tests: started with the tests' own path, and always ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE_SECONDS

PATH = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


@contextmanager
def child(module: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(module), *arguments],
        env=os.environ | {"PYTHONPATH": PATH} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(module: Path, *arguments: str, **environment: str) -> list[str]:
    """Returns the whole output of a child that ends by itself."""
    with child(module, *arguments, **environment) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return said.splitlines()
