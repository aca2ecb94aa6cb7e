"""How much of each workload is run: the full measure, or a quick look."""

from __future__ import annotations

import msgspec


class Scale(msgspec.Struct, frozen=True):
    creates: int
    batch: int
    burst: int
    burst_share: float  # of a peer's own burst, where that is not the common one
    jobs_each_second: int
    seconds: int
    slow_peers: bool  # W3 with those that fall behind
    pending: tuple[int, ...]  # W4 grows to each of these in turn
    tick_seconds: int
    idle_seconds: int
    decisions: int  # W5
    decisions_on_postgres: int
    churned: int  # executions that come and go before claims are measured again
    hostile: int  # webhooks of one tenant that never end, beside the others
    fair_seconds: int


FULL = Scale(
    creates=20_000,
    batch=100_000,
    burst=20_000,
    burst_share=1.0,
    jobs_each_second=1_000,
    seconds=30,
    slow_peers=True,
    pending=(10_000, 100_000, 1_000_000),
    tick_seconds=10,
    idle_seconds=10,
    decisions=1_000_000,
    decisions_on_postgres=200_000,
    churned=1_000_000,
    hostile=100_000,
    fair_seconds=40,
)

QUICK = Scale(
    creates=4_000,
    batch=20_000,
    burst=5_000,
    burst_share=0.1,
    jobs_each_second=1_000,
    seconds=5,
    slow_peers=False,
    pending=(10_000, 50_000),
    tick_seconds=4,
    idle_seconds=3,
    decisions=100_000,
    decisions_on_postgres=40_000,
    churned=100_000,
    hostile=20_000,
    fair_seconds=10,
)
