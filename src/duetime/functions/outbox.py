"""Gathers a worker's ends, notes and returned claims into reports.

Ends are gathered for a few milliseconds, and while a report is under way, so that a burst costs few reports; notes for
a tenth of a second. A note is never sent after the end of its attempt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from duetime.domain.work import MOST_REPORTED, MOST_RUNNING, Ended, Note, WorkClaim
from duetime.functions.calls import Call

LINGER_SECONDS = 0.003
NOTES_SECONDS = 0.1
MOST_TEXT = 1_048_576  # characters of notes in one report, and of results; the whole report stays well below MOST_BYTES


class Batch(NamedTuple):
    ended: list[Ended]
    notes: list[Note]
    unbegun: list[WorkClaim]


class Outbox:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: deque[Ended] = deque()
        self._notes: deque[Note] = deque()
        self._unbegun: list[WorkClaim] = []
        self._noisy: deque[Call] = deque()  # calls with new notes since they were last read
        self._is_noise_told = False
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._note_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of unreported ends."""
        return len(self._ended)

    def is_empty(self) -> bool:
        return not self._ended and not self._notes and not self._noisy and not self._unbegun

    def unsaid(self) -> list[WorkClaim]:
        return [ended.claim for ended in self._ended]

    def give_back(self, claim: WorkClaim) -> None:
        """Returns a claim whose call never began: other workers may have it at once."""
        self._unbegun.append(claim)
        self._due.set()

    def put(self, call: Call, ended: Ended) -> None:
        self._notes.extend(call.take_notes())
        self._ended.append(ended)

    def note(self, call: Call) -> None:
        """A call has new notes or progress. Any thread may call it."""
        if not call.is_noisy:
            call.is_noisy = True
            self._noisy.append(call)
        if not self._is_noise_told:
            self._is_noise_told = True
            try:
                self._loop.call_soon_threadsafe(self._wait_for_notes)
            except RuntimeError:  # the loop was closed while this call still ran
                return

    def _wait_for_notes(self) -> None:
        if self._note_timer is None:
            self._note_timer = self._loop.call_later(NOTES_SECONDS, self._notes_are_due)

    def _notes_are_due(self) -> None:
        self._note_timer = None
        self._is_noise_told = False
        self._due.set()

    def send_soon(self, *, at_once: bool) -> None:
        """Schedules a report of the ends: a little later, to gather more of them, or at once if no more will come."""
        if at_once or len(self._ended) >= MOST_REPORTED:
            self._due.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(LINGER_SECONDS, self._due.set)

    async def wait(self, seconds: float) -> None:
        """Waits until a report is due, at most this many seconds."""
        timer = self._loop.call_later(seconds, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    def take(self) -> Batch:
        """Returns the next report's content. Ends wait while there are notes that must be sent before them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()
        while self._noisy:
            call = self._noisy.popleft()
            call.is_noisy = False  # first: a note that comes from now on adds the call again
            self._notes.extend(call.take_notes())
        notes = self._take_notes()
        ended = [] if self._notes else self._take_ended()
        unbegun, self._unbegun = self._unbegun[:MOST_RUNNING], self._unbegun[MOST_RUNNING:]
        if self._notes or self._ended or self._unbegun:
            self._due.set()
        return Batch(ended, notes, unbegun)

    def _take_ended(self) -> list[Ended]:
        ended: list[Ended] = []
        room = MOST_TEXT
        while self._ended and len(ended) < MOST_REPORTED and room > 0:
            end = self._ended.popleft()
            room -= len(end.result or "") + len(end.error_message or "")
            ended.append(end)
        return ended

    def _take_notes(self) -> list[Note]:
        notes: list[Note] = []
        room = MOST_TEXT
        while self._notes and len(notes) < MOST_REPORTED and room > 0:
            note = self._notes.popleft()
            room -= len(note.text)
            notes.append(note)
        return notes

    def clear(self) -> int:
        """Drops everything. Returns how many ends were dropped."""
        dropped = len(self._ended)
        self._ended.clear()
        self._unbegun.clear()
        self._notes.clear()
        self._noisy.clear()
        return dropped
