"""Checks of `duetime doctor` on a PostgreSQL server. Pure functions: values in, a status and sentences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duetime.domain.doctor import Check, how_many, ok, problem, size, span, warning
from duetime.domain.instants import DAY, format_instant

OLDEST_VERSION = 14
SLOW_CONNECTION = 1000  # ms
SKEW_WARNING, SKEW_PROBLEM = 200, 2000  # ms
BESIDE = 2  # connections of a node on top of DB_MAX_OPEN_CONNS: heartbeat and hints
FEW_STRAYS = 1000
DEAD_ROWS = 50_000  # fewer do not matter
LATE_RETENTION = 2 * DAY


def connection(place: str, ms: float) -> Check:
    found = f"Connected to {place} in {ms:.0f} ms."
    if ms > SLOW_CONNECTION:
        return warning("connection", found, "Look for the cause: the network, name resolution, or a busy server.")
    return ok("connection", found)


def unreachable(place: str, why: str) -> Check:
    return problem(
        "connection", f"{place} can't be reached: {why}.",
        "Is the server running, is the URL right, and does pg_hba.conf let this machine and user in?",
    )  # fmt: skip


def server_version(number: int, text: str) -> Check:
    found = f"The server is PostgreSQL {text}."
    if number // 10_000 < OLDEST_VERSION:
        return problem("server version", found, f"Duetime needs {OLDEST_VERSION} or later: upgrade the server.")
    return ok("server version", found)


def clock_skew(skew: float, round_trip: float) -> Check:
    """`skew`: how far (ms) the database's clock is ahead of ours, accurate to half the round trip."""
    unsure = round_trip / 2
    certain = max(0.0, abs(skew) - unsure)
    way = "ahead of" if skew > 0 else "behind"
    found = f"The database's clock is {span(abs(skew))} {way} this machine's (± {unsure:.1f} ms)."
    if certain <= SKEW_WARNING:
        return ok("clock skew", found)
    advice = "Let NTP (chrony, timesyncd) keep both clocks: jobs fire by the clock of their node."
    return (warning if certain <= SKEW_PROBLEM else problem)("clock skew", found, advice)


def durability(settings: Mapping[str, str]) -> Check:
    """`settings`: `fsync`, `synchronous_commit` and `full_page_writes`, as they apply to our connection."""
    off = [name for name, value in settings.items() if value == "off"]
    if off:
        return problem(
            "durability", f"{_and(off)} {'is' if len(off) == 1 else 'are'} off: what was acknowledged may be lost.",
            "Turn it on in postgresql.conf (or for this role and database), and reload.",
        )  # fmt: skip
    values = ", ".join(f"{name} is {value}" for name, value in settings.items())
    return ok("durability", f"What is acknowledged is on disk: {values}.")


def connections(room: int, in_use: int, each: int, nodes: int, is_pooled: bool) -> Check:
    """`room`: connections that the server allows us. `each`: DB_MAX_OPEN_CONNS of a node."""
    if is_pooled:
        return ok("connections", f"PgBouncer shares {room} connections of the server; {in_use} are in use.")
    need = (each + BESIDE) * max(1, nodes)
    found = (
        f"{max(1, nodes)} {'node' if nodes <= 1 else 'nodes'} may open {need} connections; "
        f"the server has room for {room}, and {in_use} are in use."
    )
    advice = "Raise max_connections, lower DB_MAX_OPEN_CONNS, or put PgBouncer in between."
    if in_use >= room:
        return problem("connections", found, advice)
    return ok("connections", found) if need <= room else warning("connections", found, advice)


def writable(is_standby: bool, is_read_only: bool) -> Check:
    if is_standby:
        return problem("writable", "The server is a standby: it takes no writes.", "Name the primary in DATABASE_URL.")
    if is_read_only:
        return problem(
            "writable", "default_transaction_read_only is on: nothing can be written.",
            "Turn it off for this role and database.",
        )  # fmt: skip
    return ok("writable", "The server is a primary and takes writes.")


def autovacuum(is_on: bool, is_counting: bool) -> Check:
    if is_on and is_counting:
        return ok("autovacuum", "Autovacuum is on.")
    return problem(
        "autovacuum", f"{'track_counts' if is_on else 'autovacuum'} is off: tables that change often will grow.",
        "Turn it on in postgresql.conf, and reload.",
    )  # fmt: skip


def strays(executions: int, attempts: int) -> Check:
    """Rows in the partition `rest`: their days had no partition."""
    count = executions + attempts
    if not count:
        return ok("stray history", "All history lies in the partition of its day.")
    found = f"{how_many(count, 'row')} outside the partitions by day."
    if count <= FEW_STRAYS:
        return ok("stray history", found)
    return warning(
        "stray history", found,
        "They go by retention, in pages. If no node was down for days, check that all nodes' clocks are right.",
    )  # fmt: skip


def history(rows: int, size_bytes: int, oldest: int | None, now: int, keep_seconds: float, most: int) -> Check:
    """`oldest`: the first day (ms) that has a partition."""
    since = "" if oldest is None else f", the oldest of {format_instant(oldest)[:10]}"
    found = f"History has {rows:,} executions in {size(size_bytes)}{since}."
    if oldest is not None and oldest < now - keep_seconds * 1000 - LATE_RETENTION:
        return warning(
            "history", f"{found} That is older than EXECUTION_HISTORY_RETENTION ({keep_seconds / 86_400:g} d).",
            "Open executions keep a day. Else see the log of the node that runs housekeeping: can it drop partitions?",
        )  # fmt: skip
    if rows > most * 1.1:
        advice = "See the log of the node that runs housekeeping: it removes what is beyond EXECUTION_HISTORY_LIMIT."
        return warning("history", f"{found} That is more than {most:,}.", advice)
    return ok("history", found)


def dead_rows(tables: Sequence[tuple[str, int, int]]) -> Check:
    """`tables`: (table, live rows, dead rows) of the tables that change often."""
    swollen = [
        f"{table} ({dead:,} dead rows, {live:,} live)" for table, live, dead in tables if dead > max(DEAD_ROWS, live)
    ]
    if swollen:
        return warning(
            "dead rows", f"Vacuum does not keep up with {_and(swollen)}.",
            "Look for long transactions (pg_stat_activity.xact_start) and replication slots that hold it back.",
        )  # fmt: skip
    worst = max(tables, key=lambda it: it[2], default=("", 0, 0))
    most = f": {worst[2]:,} dead rows at most ({worst[0]})" if worst[2] else ""
    return ok("dead rows", f"Vacuum keeps up{most}.")


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
