"""Commands that depend on other commands: applied in the same commit, or not at all."""

from __future__ import annotations

from typing import Generic

import msgspec

from duetime.domain.commands.base import Command, R
from duetime.domain.errors import DuetimeError
from duetime.domain.states import State


class OnFinish(Command[object], frozen=True):
    """Apply `command` if this same commit ends the execution with this attempt, token and state.

    Returns the command's result, or None if it was not applied. It follows the Finish in the same batch: so it is
    applied once, however often the batch has to be sent. A new job in it that has no owner ('') gets the owner of
    the job whose execution has ended. If a job can't be created, the execution's reason says so (`UNSENT`).
    """

    execution_id: str
    attempt: int
    token: int
    state: State
    command: Command


class Carried(msgspec.Struct, Generic[R], frozen=True):
    answer: R  # the result of `first`
    refused: tuple[DuetimeError, ...]  # errors of commands in `then`


class WithNotifications(Command[Carried[R]], Generic[R], frozen=True):
    """Apply `first` and, if it does not fail, the commands in `then`, in one commit. Returns `Carried`.

    A command in `then` that fails is left out, and does not affect the others.
    """

    first: Command[R]
    then: tuple[Command, ...]
