"""What Duetime promises of itself, checked against what was just measured. Only what was measured is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bench.results import Kind, Result
from bench.scale import Scale


class Verdict(msgspec.Struct, frozen=True):
    holds: bool
    text: str


def judge(results: Sequence[Result], scale: Scale) -> list[Verdict]:
    return [
        *_creates(results),
        *_burst(results),
        *_every_second(results),
        *_pending(results, scale),
        *_pages(results),
        *_functions(results),
        *_fairness(results),
        *_on_postgres(results),
    ]


def _figure(results: Sequence[Result], table: str, kind: Kind, name: str) -> float | None:
    return next((r.figures[name] for r in results if r.table == table and r.kind is kind and name in r.figures), None)


def _peers(results: Sequence[Result], table: str, name: str) -> dict[str, float]:
    rows = (r for r in results if r.table == table and r.kind is Kind.PEER)
    return {row.subject: row.figures[name] for row in rows if name in row.figures}


def _share(results: Sequence[Result], table: str, name: str, share: float, of: str) -> Iterator[Verdict]:
    us = _figure(results, table, Kind.US, name)
    limits = [r.figures[name] for r in results if r.table == table and r.kind is Kind.LIMIT and name in r.figures]
    if us is not None and limits:
        limit = max(limits)
        yield Verdict(us / limit >= share, f"{table}: {us / limit:.0%} of {of}, at least {share:.0%} is promised")


FAIR_MS = 50.0  # a p99 up to this is fair, however low it is without the hostile tenant


def _fairness(results: Sequence[Result]) -> Iterator[Verdict]:
    for table in ("fairness", "pg-fairness", "attack", "pg-attack"):
        ours, quiet = (_figure(results, table, kind, "p99_ms") for kind in (Kind.US, Kind.LIMIT))
        missing = _figure(results, table, Kind.US, "missing")
        if ours is None or quiet is None:
            continue
        limit = max(2 * quiet, FAIR_MS)
        text = f"{table}: p99 {ours:.0f} ms late beside a hostile tenant, {quiet:.0f} without; {limit:.0f} is promised"
        yield Verdict(ours <= limit, text)
        yield Verdict(missing == 0, f"{table}: {missing:.0f} of the normal tenants' are missing")
        yield from _under_attack(results, table)


def _under_attack(results: Sequence[Result], table: str) -> Iterator[Verdict]:
    slowest, failed, grown = (
        _figure(results, table, Kind.US, name) for name in ("health_ms", "health_failed", "grown_mb")
    )
    if slowest is not None:
        yield Verdict(
            slowest <= 1000 and not failed, f"{table}: the slowest /health took {slowest:.0f} ms, {failed:.0f} failed"
        )
    if grown is not None:
        yield Verdict(grown <= 100, f"{table}: memory grew by {grown:.0f} MB, at most 100 is promised")


def _creates(results: Sequence[Result]) -> Iterator[Verdict]:
    yield from _share(results, "w1-single", "per_second", 0.6, "an empty Litestar POST")
    yield from _share(results, "w1-batch", "per_second", 0.4, "bare SQLite")
    # 10 % more for each is 91 % as many.
    yield from _share(results, "limits", "per_second", 1 / 1.1, "a user without limits")
    yield from _share(results, "pg-limits", "per_second", 1 / 1.1, "a user without limits")


def _burst(results: Sequence[Result]) -> Iterator[Verdict]:
    yield from _share(results, "w2", "drain_per_second", 0.4, "the faster bare client")
    rate = _figure(results, "w2", Kind.US, "drain_per_second")
    if rate is None:
        return
    for peer, theirs in _peers(results, "w2", "drain_per_second").items():
        wanted = 10.0 if peer == "APScheduler 3, SQLite" else 1.0
        if theirs:
            yield Verdict(
                rate / theirs > wanted, f"w2: {rate / theirs:.1f} × {peer}, more than {wanted:.0f} × is promised"
            )
    first = _figure(results, "w2", Kind.US, "first_ms") or 0.0
    yield Verdict(0 <= first <= 20, f"w2: the first request {first:.1f} ms after T, 0 to 20 is promised")
    yield from _whole(results, "w2")


def _every_second(results: Sequence[Result]) -> Iterator[Verdict]:
    for table, most in (("w3", 150.0), ("w3-jitter", 20.0)):
        p99 = _figure(results, table, Kind.US, "p99_ms")
        if p99 is not None:
            yield Verdict(p99 <= most, f"{table}: p99 {p99:.1f} ms late, at most {most:.0f} is promised")
            first = _figure(results, table, Kind.US, "first_ms") or 0.0
            yield Verdict(first >= 0, f"{table}: never early ({first:.1f} ms is the least)")
            yield from _whole(results, table)
    ours, theirs = _figure(results, "w3", Kind.US, "p99_ms"), _peers(results, "w3", "p99_ms")
    if ours is not None and theirs:
        best = min(theirs, key=lambda peer: theirs[peer])
        yield Verdict(
            ours <= theirs[best] / 2, f"w3: p99 is {ours / theirs[best]:.0%} of {best}'s, at most 50% is promised"
        )


def _whole(results: Sequence[Result], table: str) -> Iterator[Verdict]:
    missing, repeated = (_figure(results, table, Kind.US, name) for name in ("missing", "repeated"))
    yield Verdict(not missing and not repeated, f"{table}: {missing:.0f} missing, {repeated:.0f} repeated")


def _pending(results: Sequence[Result], scale: Scale) -> Iterator[Verdict]:
    for name, most, unit in (
        ("rss_mb", 200, "MB"),
        ("idle_cpu_percent", 2, "% of a core idle"),
        ("ready_seconds", 3, "s to be ready again"),
    ):
        value = _figure(results, "w4", Kind.US, name)
        if value is not None:
            at = f"with {scale.pending[-1]:,} pending"
            yield Verdict(value <= most, f"w4: {value:.1f} {unit} {at}, at most {most} is promised")
    ticks = [r.figures["cpu_percent"] for r in results if r.table == "w4-tick"]
    if len(ticks) > 1:
        # A share of a core below one percent is within the noise of the clock that counts it.
        grown = ticks[-1] - ticks[0]
        yield Verdict(grown <= max(1.0, ticks[0]), f"w4: a tick's cost went from {ticks[0]:.1f} to {ticks[-1]:.1f} %")


def _pages(results: Sequence[Result]) -> Iterator[Verdict]:
    yield from _share(results, "w5", "per_second", 0.4, "bare SQLite")


def _functions(results: Sequence[Result]) -> Iterator[Verdict]:
    rate = _figure(results, "functions", Kind.US, "drain_per_second")
    if rate is None:
        return
    for peer, theirs in _peers(results, "functions", "drain_per_second").items():
        wanted = 3 if peer == "Celery 5, Redis" else 5
        if theirs:
            text = f"functions: {rate / theirs:.1f} × {peer}, at least {wanted} × is promised"
            yield Verdict(rate / theirs >= wanted, text)
    yield from _whole(results, "functions")


def _on_postgres(results: Sequence[Result]) -> Iterator[Verdict]:
    yield from _share(results, "pg-batch", "per_second", 0.4, "bare COPY")
    yield from _share(results, "pg-w2", "drain_per_second", 0.8, "the figure on SQLite")
    p99 = _figure(results, "pg-w3", Kind.US, "p99_ms")
    if p99 is not None:
        yield Verdict(p99 <= 250, f"pg-w3: p99 {p99:.1f} ms late, at most 250 is promised")
    for table in ("pg-w2", "pg-w3"):
        if _figure(results, table, Kind.US, "missing") is not None:
            yield from _whole(results, table)
    ours, bare = _figure(results, "pg-w5", Kind.US, "per_second"), _figure(results, "pg-w5", Kind.LIMIT, "per_second")
    if ours is not None and bare is not None:
        yield Verdict(
            ours / bare >= 0.5, f"pg-w5: {ours / bare:.0%} of bare SQL for the same rows, at least 50% is promised"
        )
    two, one = (_figure(results, "pg-w5-two", kind, "per_second") for kind in (Kind.US, Kind.LIMIT))
    if two is not None and one is not None:
        busy = _figure(results, "pg-w5-two", Kind.US, "machine_percent") or 0.0
        text = f"pg-w5-two: two nodes {two / one:.1f} × of one, with {busy:.0f} % of the machine's cores in use"
        yield Verdict(two / one >= 1.3 or busy >= 95, f"{text}; at least 1.3 × is promised while cores are to be had")
    after, fresh = (_figure(results, "pg-claim", kind, "p50_ms") for kind in (Kind.US, Kind.LIMIT))
    if after is not None and fresh is not None:
        text = f"pg-claim: a claim takes {after / fresh:.1f} × of one on a fresh table, at most 2 × is promised"
        yield Verdict(after / fresh <= 2, text)
