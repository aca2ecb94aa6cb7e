"""What can go wrong in a command, and how a person is told: one sentence on stderr, and an exit code.

1: it was asked properly but could not be done (no server, refused, not found).
2: it was asked wrongly (usage, settings).
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from duetime.settings import BadSetting


class CommandFailed(Exception):
    """Ends the command. `details` are printed below the sentence, one a line."""

    def __init__(self, message: str, details: tuple[str, ...] = (), exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.exit_code = exit_code


class BadUsage(CommandFailed):
    """The arguments make no sense together, or a file can't be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


class Program(TyperGroup):
    """The root of all commands: turns their failures into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BadSetting as error:
            failure: CommandFailed = BadUsage(str(error))
        except CommandFailed as error:
            failure = error
        _tell(failure)
        ctx.exit(failure.exit_code)
        return None


def _tell(failure: CommandFailed) -> None:
    from duetime.cli.output import print_failure

    print_failure(failure.message, failure.details)
