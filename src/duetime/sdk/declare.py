"""Puts the jobs that an app declares in place: python -m duetime.sdk.declare module:app [url] [--prune].

`duetime worker` runs it before it begins. Exit code 2: the app can't be used; 1: the server did not take them. With
exit code 0, stderr has sentences about jobs that were left as they are, or removed.
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
    except Exception as error:  # noqa: BLE001 (it is the user's module, and told to them)
        traceback.print_exc()
        sys.stderr.write(f"{spec} can't be imported: {type(error).__name__}: {error}\n")
        return 2
    if not isinstance(app, Duetime):
        return 0  # it has functions, and declares nothing
    if app.is_embedded:
        sys.stderr.write(f"{spec} is embedded: it runs its jobs itself; give it a server's URL to use a worker\n")
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
    """jobs:app, however the module was found."""
    place, _, name = spec.rpartition(":")
    return f"{Path(place).stem if place.endswith('.py') else place}:{name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", "--prune" in sys.argv[3:]))
