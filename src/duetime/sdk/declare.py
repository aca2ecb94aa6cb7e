"""Puts the jobs that an app declares in place: python -m duetime.sdk.declare module:app [url].

`duetime worker` runs it before it begins. Exit code 2: the app can't be used; 1: the server did not take them.
"""

from __future__ import annotations

import sys
import traceback

from duetime.client import DuetimeError
from duetime.functions.loading import AppNotFound, load_app
from duetime.sdk.app import Duetime


def main(spec: str, url: str) -> int:
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
    try:
        app.put_jobs()
    except DuetimeError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
