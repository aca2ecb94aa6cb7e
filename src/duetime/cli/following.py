"""Following a log as it is written: server-sent events read line by line, and resumed where a connection broke."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from duetime.cli.errors import CommandFailed

SILENCE_SECONDS = 15.0  # the server says something every few seconds
TRIES = 5  # to connect again, one after the other, without anything new
PAUSE_SECONDS = 1.0


class Told(NamedTuple):
    number: str
    event: str
    text: str


def follow(client: Any, path: str) -> Iterator[Told]:
    """What is told until the end, from the beginning. `client` is a `cli.client.Client`."""
    last: str | None = None
    tries = 0
    while True:
        try:
            for told in client.stream(path, last, SILENCE_SECONDS):
                if told.event == "end":
                    return
                last, tries = told.number or last, 0
                yield told
        except (OSError, http.client.HTTPException):
            pass  # as when it ended without saying so: resumed below
        tries += 1
        if tries > TRIES:
            raise CommandFailed(f"the connection to {client.url} broke, and {TRIES} more did, too; run this again")
        time.sleep(PAUSE_SECONDS)


def read_events(answer: http.client.HTTPResponse) -> Iterator[Told]:
    number = event = ""
    data: list[str] = []
    for raw in answer:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if not line:
            if event or data:
                yield Told(number, event, "\n".join(data))
            event, data = "", []
        elif line.startswith("id: "):
            number = line[4:]
        elif line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
