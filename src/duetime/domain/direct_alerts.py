"""Which alerts a node tells the operator of directly, without the store: each once, and not too many. Pure.

A node tells of what it sees itself, so two nodes may tell of the same. An alert that fires is told once until it is
resolved. In a storm the rest is left out: `MOST_AN_HOUR`.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from duetime.domain.instants import HOUR
from duetime.domain.notices import make_notice
from duetime.domain.payloads import Notice

MOST_AN_HOUR = 60
MOST_KEYS = 256  # alerts that have fired and are not resolved
DATABASE_GONE, NODE_LEAVING = "database_gone", "node_leaving"


class DirectRules:
    def __init__(self) -> None:
        self._firing: OrderedDict[str, None] = OrderedDict()
        self._told: deque[int] = deque()

    def admits(self, notice: Notice, now: int) -> bool:
        """Returns whether to send the notice, and takes note of it."""
        key = notice.dedup_key
        if notice.status == "firing":
            if key in self._firing or not self._has_room(now):
                return False
            self._firing[key] = None
            if len(self._firing) > MOST_KEYS:
                self._firing.popitem(last=False)
        elif notice.status == "resolved":
            if key not in self._firing:
                return False  # nobody was told that it fired
            del self._firing[key]
        elif not self._has_room(now):
            return False
        self._told.append(now)
        return True

    def _has_room(self, now: int) -> bool:
        while self._told and not now - HOUR < self._told[0] <= now:  # the clock may have been set back
            self._told.popleft()
        return len(self._told) < MOST_AN_HOUR


def database_gone(node: str, seconds: float, trouble: str) -> Notice:
    return make_notice(
        (DATABASE_GONE,), f"Duetime: {node} can't reach its database",
        f"For {seconds:.0f} s the node {node} could neither read nor write: {trouble}. Nothing fires there meanwhile. "
        "What is due now is decided when the database is back.",
        severity="critical", status="firing", dedup_key=f"{DATABASE_GONE}:{node}", data={"node": node},
    )  # fmt: skip


def database_back(node: str, seconds: float) -> Notice:
    return make_notice(
        (DATABASE_GONE,), f"Duetime: {node} has its database back", f"It was away for {seconds:.0f} s.",
        severity="critical", status="resolved", dedup_key=f"{DATABASE_GONE}:{node}", data={"node": node},
    )  # fmt: skip


def node_leaving(node: str) -> Notice:
    return make_notice(
        (NODE_LEAVING,), f"Duetime: the node {node} is leaving",
        "It was asked to stop (SIGTERM). Its attempts have time to end, and other nodes take over its shards.",
        severity="info", status="firing", dedup_key=f"{NODE_LEAVING}:{node}", data={"node": node},
    )  # fmt: skip
