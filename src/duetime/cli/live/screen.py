"""The loop of the live view. A thread reads frames, so that a slow server delays no key; the main thread draws."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from duetime.cli.errors import CommandFailed
from duetime.cli.live.terminal import Terminal
from duetime.cli.live.view import View, press

Frame = dict[str, Any]
Gather = Callable[[str | None], Frame]  # of the open job, if one is open
Draw = Callable[[View, Frame, int, int], RenderableType]  # width, height


class Source:
    """The latest frame, read again and again by a thread of its own. A failed read keeps the frame, with the error."""

    def __init__(self, gather: Gather, interval: float, ready: Callable[[], None]) -> None:
        self.frame: Frame = {}
        self.error = ""
        self._gather = gather
        self._interval = interval
        self._ready = ready
        self._job_id: str | None = None
        self._is_paused = False
        self._is_over = False
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duetime-top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, view: View) -> None:
        """Takes over what the view asks for."""
        self._job_id, self._is_paused = view.job_id, view.is_paused
        if view.asks_now:
            self._asked.set()

    def stop(self) -> None:
        """Does not wait: the thread may be waiting for a server that does not respond."""
        self._is_over = True
        self._asked.set()

    def _run(self) -> None:
        asked = True
        while not self._is_over:
            if asked or not self._is_paused:
                self._read()
            asked = self._asked.wait(self._interval)
            self._asked.clear()

    def _read(self) -> None:
        try:
            self.frame, self.error = self._gather(self._job_id), ""
        except CommandFailed as failure:
            self.error = failure.message
        if not self._is_over:
            self._ready()


def run(gather: Gather, draw: Draw, interval: float, console: Console | None = None) -> None:
    """Shows the view until it is quit. Ctrl-C quits it, too."""
    console = console or Console(highlight=False)
    terminal, view = Terminal(), View()
    with terminal.taken():
        source = Source(gather, interval, terminal.wake)
        source.start()
        try:
            with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
                while not view.is_over:
                    frame = {**source.frame, "error": source.error, "read_at": time.monotonic()}
                    live.update(draw(view, frame, *console.size), refresh=True)
                    for key in terminal.wait(interval):
                        view = press(view, key, frame.get("jobs") or ())
                        source.follow(view)
        except KeyboardInterrupt:
            pass  # as asked
        finally:
            source.stop()
