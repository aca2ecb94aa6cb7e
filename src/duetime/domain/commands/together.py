"""Commands that hang on others: carried out with them, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec

from duetime.domain.commands.base import Command
from duetime.domain.errors import DuetimeError
from duetime.domain.states import State


class OnFinish(Command, frozen=True):
    """Carry out `command` if this very commit ends that execution with that attempt, token and state.

    Answers what the command answers, or None if it does not. It comes after the Finish, in the same batch: so it is
    carried out once, however often the batch has to be sent. A new job in it that has no owner ('') gets the owner of
    the job whose execution has ended. If a job can't be created, that is the reason of the execution (`UNSENT`).
    """

    execution_id: str
    attempt: int
    token: int
    state: State
    command: Command


class WithNotifications(Command, frozen=True):
    """Carry out `first`, and if it is not refused `then` with it, in one commit. Answers `Carried`.

    One of `then` that is refused is left out, and spoils nothing.
    """

    first: Command
    then: tuple[Command, ...]


class Carried(msgspec.Struct, frozen=True):
    answer: Any  # to the first
    refused: tuple[DuetimeError, ...]  # of the others
