"""Failures of commands: one sentence on stderr, and an exit code.

1: the command was correct, but could not be carried out (no server, refused, not found).
2: the command was wrong (usage, settings).
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from duetime.cli.output import print_failure
from duetime.settings import BadSetting


class CommandFailed(Exception):
    """Ends the command. `details` are printed below the message, one on each line."""

    def __init__(self, message: str, details: tuple[str, ...] = (), exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.exit_code = exit_code


class BadUsage(CommandFailed):
    """The arguments contradict each other, or a file can't be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


class Program(TyperGroup):
    """The root of all commands. It prints their failures and sets the exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BadSetting as error:
            failure: CommandFailed = BadUsage(str(error))
        except CommandFailed as error:
            failure = error
        print_failure(failure.message, failure.details)
        ctx.exit(failure.exit_code)
        return None
