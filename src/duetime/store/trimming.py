"""Chooses what housekeeping removes: which executions a TrimHistory, and which other rows a Prune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.domain.commands import Prune, TrimHistory

UNINDEXED = "default"  # the tenant that is not in the index by tenant


def pruned_by_age(command: Prune, count: int) -> dict[str, int]:
    """Returns the SQL blocks to run, each with the instant before which it removes rows.

    `count`: the executions that this command has removed. Nodes stay while more executions may name them.
    """
    return {
        "prune_skips": command.skips_before,
        "prune_idempotency_keys": command.keys_before,
        "prune_circuits": command.circuits_before,
        "prune_nodes": command.nodes_before if count < command.limit else 0,
        "prune_api_keys": command.revoked_before,
    }


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
