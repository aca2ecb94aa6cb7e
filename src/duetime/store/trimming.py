"""Chooses which of the executions that a store has read a TrimHistory removes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.domain.commands import TrimHistory

UNINDEXED = "default"  # the tenant that is not in the index by tenant


def choose_to_trim(seen: Sequence[Any], command: TrimHistory) -> tuple[list[str], str, bool]:
    """Returns the ids to remove, the last id that was looked at, and whether it was the last of all.

    `seen`: (id, whether it may be removed), oldest first, up to `look` of them.
    """
    chosen: list[str] = []
    last = command.after
    for execution_id, may_go in seen:
        if len(chosen) == command.number:
            return chosen, last, False
        last = execution_id
        if may_go:
            chosen.append(execution_id)
    return chosen, last, len(seen) < command.look
