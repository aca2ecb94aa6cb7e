"""Following a log as it is written, resumed where a connection broke."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from duetime.cli.client import Client
from duetime.cli.errors import CommandFailed
from duetime.client.calls import Followed, Frame, path_of
from duetime.client.plain_http import PlainHttpError
from duetime.client.sse import Following

SILENCE_SECONDS = 15.0  # the server says something every few seconds
TRIES = 5  # to connect again, one after the other, without anything new
PAUSE_SECONDS = 1.0


def follow_logs(client: Client, execution: str) -> Iterator[Frame]:
    """What an execution logs until its end, from the beginning."""
    following = Following(Followed(path_of("executions", execution, "logs"), lambda frame: frame, end="end"))
    tries = 0
    while True:
        following.open()
        with contextlib.suppress(PlainHttpError):  # as when it ended without saying so: resumed below
            for chunk in client.stream(following.call(), SILENCE_SECONDS):
                for frame in following.take(chunk):
                    tries = 0
                    yield frame
                if following.is_over:
                    return
        tries += 1
        if tries > TRIES:
            raise CommandFailed(f"the connection to {client.url} broke, and {TRIES} more did, too; run this again")
        time.sleep(PAUSE_SECONDS)
