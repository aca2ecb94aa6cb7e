"""Creates or updates the jobs that an app declares: python -m duetime.sdk.declare module:app [url] [--prune].

`duetime worker` runs it first. Exit code 2: the app can't be used; 1: the server refused a job. With exit code 0,
stderr has sentences about jobs that were not changed, or were removed.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from duetime.client import DuetimeError
from duetime.functions.loading import AppNotFound, load_app
from duetime.sdk.app import Duetime


def main(spec: str, url: str, prune: bool = False) -> int:
    try:
        app = load_app(spec)
    except AppNotFound as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    except Exception as error:  # noqa: BLE001 (the user's module may raise anything)
        traceback.print_exc()
        sys.stderr.write(f"{spec} can't be imported: {type(error).__name__}: {error}\n")
        return 2
    if not isinstance(app, Duetime):
        return 0  # it has functions, but declares no jobs
    if app.is_embedded:
        sys.stderr.write(f"{spec} is embedded and runs its jobs itself; to use a worker, give it the URL of a server\n")
        return 2
    app.url = url or app.url
    app.name = app.name or name_of(spec)
    try:
        said = app.put_jobs(prune=prune)
    except DuetimeError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stderr.writelines(f"{sentence}\n" for sentence in said)
    return 0


def name_of(spec: str) -> str:
    """Returns a name such as jobs:app, for a module or a file."""
    place, _, name = spec.rpartition(":")
    return f"{Path(place).stem if place.endswith('.py') else place}:{name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", "--prune" in sys.argv[3:]))
