"""The commands of a batch that were applied, each with its result: without the commands that only carry others."""

from __future__ import annotations

from collections.abc import Iterator

from duetime.domain.commands import Carried, Command, Finish, OnFinish, WithNotifications
from duetime.domain.errors import DuetimeError
from duetime.telemetry.emitted import Written


def applied(written: Written) -> Iterator[tuple[Command, object]]:
    """Yields the commands that did not fail, with their results.

    An on-finish command is yielded with the result None, unless its execution's end was refused in the same batch.
    """
    refused: set[object] | None = None
    for command, answer in zip(written.commands, written.answers, strict=True):
        if isinstance(answer, DuetimeError):
            continue
        if isinstance(command, WithNotifications):
            if isinstance(answer, Carried):
                yield command.first, answer.answer
        elif isinstance(command, OnFinish):
            refused = _refused(written) if refused is None else refused
            if command.execution_id not in refused:
                yield command.command, None
        else:
            yield command, answer


def _refused(written: Written) -> set[object]:
    return {
        id
        for command, answer in zip(written.commands, written.answers, strict=True)
        if isinstance(command, Finish) and isinstance(answer, list)
        for id in answer
    }
