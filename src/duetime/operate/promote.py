"""Promotion: moves all data of a SQLite node into a PostgreSQL database. No job runs twice, and none is missed.

Two nodes must never run the same jobs, wherever a promotion breaks off. Three facts ensure that:

1. The source is marked before any row is copied. From then on no node starts on it (`refuse_promoted`).
2. The target is filled in one transaction: until the commit everyone sees it empty, and a copy that broke off leaves no
   rows. The same commit records that this promotion is complete.
3. Only verified data is committed: both sides are counted and summed before the commit.

    killed while …            source               target       the next run
    stopping, copying         marked, unfinished   empty        copies again
    after the commit          marked, unfinished   complete     sees that, and finishes the mark
    after the mark            marked, finished     complete     says so

A promotion that ends by itself before the commit (refused, Ctrl-C, the database became unreachable) removes its mark:
the old node can simply be started again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import apsw
import asyncpg

from duetime.process.crash import crash_point
from duetime.store.postgres.faults import AWAY
from duetime.store.postgres.load import NODES, WANTED, Load, Promoted
from duetime.store.sqlite.export import Export, Facts, get_versions, open_source
from duetime.store.sqlite.handover import Mark, end_mark, find_holder, get_mark, place, remove_mark, set_mark, try_lock

LOCK_PAUSE_SECONDS = 0.05
TELL_SECONDS = 5.0  # between two progress messages while a node drains

T = TypeVar("T")


class PromotionFailed(Exception):
    """The promotion was refused, or failed. The message has the reason, the current state, and what to do."""


class Person(Protocol):
    """The operator: sees the progress and answers questions."""

    def say(self, sentence: str) -> None: ...
    def confirm(self, question: str) -> bool: ...
    def begin(self, rows: int) -> None: ...
    def advance(self, rows: int) -> None: ...


class Check(NamedTuple):
    """One fact, with its value on both sides."""

    what: str
    source: int | str
    target: int | str


class Outcome(NamedTuple):
    promotion_id: str
    target: str  # host and database
    was_complete: bool  # an earlier run had completed it
    checks: list[Check]
    seconds: float


class Promotion:
    """`stop_seconds`: how long a running node may take to finish its executions."""

    def __init__(self, folder: Path, url: str | None, person: Person, stop_seconds: float) -> None:
        self._folder = folder
        self._person = person
        self._stop_seconds = stop_seconds
        self._load = None if url is None else Load(url)
        self._lock: IO[str] | None = None
        # One thread does all SQLite reads: while a page is copied, the next one is read.
        self._thread = ThreadPoolExecutor(1, "duetime-export")
        self._may_unmark = False  # it is certain that the target has no data of this promotion

    async def run(self) -> Outcome:
        began_at = time.monotonic()
        assert self._load is not None
        with self._source() as source:
            await self._load.open()
            try:
                outcome = await self._run(source, self._load)
            except (asyncpg.PostgresError, *AWAY) as error:
                raise self._broken_off(error) from error
            except apsw.Error as error:
                raise PromotionFailed(f"the database in {self._folder} can't be read or written: {error}") from error
            finally:
                if self._may_unmark:
                    self._load.cut()
                    self._thread.shutdown()  # it may still read ahead
                    remove_mark(source)
                await self._load.close()
        return outcome._replace(seconds=time.monotonic() - began_at)

    async def _run(self, source: apsw.Connection, load: Load) -> Outcome:
        promoted = await self._look(get_mark(source), load)
        if promoted is None:
            await load.check_empty()  # before a node is stopped
        self._lock = await self._take_lock(source, load)
        mark = get_mark(source)
        if promoted is None and mark is not None:
            promoted = await load.get_promotion(mark.id)
        if mark is not None and promoted is not None:
            if mark.ended_at is None:
                end_mark(source, mark, promoted.at)
            return Outcome(mark.id, load.shown, True, [Check(*item, item[1]) for item in promoted.facts.items()], 0)
        export = Export(source)
        await self._migrate(source, export)
        mark = set_mark(source, load.shown, _now())
        crash_point("promote_marked")
        return await self._copy(mark, export, load)

    async def _look(self, mark: Mark | None, load: Load) -> Promoted | None:
        """Returns the target's record of this promotion. Raises PromotionFailed if the mark names another target."""
        if mark is None:
            return None
        promoted = await load.get_promotion(mark.id)
        if promoted is None and (mark.ended_at is not None or mark.target != load.shown):
            went = "was promoted to" if mark.ended_at is not None else "is on its way to"
            raise PromotionFailed(
                f"{self._folder} {went} {place(mark.target)}, and can't go to {place(load.shown)} as well. Use that "
                f"database as --to; or undo it first: duetime promote --undo --data {self._folder}"
            )
        return promoted

    async def _migrate(self, source: apsw.Connection, export: Export) -> None:
        found, newest = get_versions(source)
        if found < newest and not self._person.confirm(
            f"{self._folder} has schema {found}, and this Duetime copies schema {newest}: migrate it first?"
        ):
            raise PromotionFailed(
                f"{self._folder} has schema {found} and was not changed. Confirm the migration, or start "
                "this version on it once; then run this again."
            )
        await self._in_thread(export.prepare)

    async def _copy(self, mark: Mark, export: Export, load: Load) -> Outcome:
        await load.make_days(await self._in_thread(export.list_days))
        await load.begin()
        if (promoted := await load.get_promotion(mark.id)) is not None:
            raise PromotionFailed(f"{place(load.shown)} was filled meanwhile, at {promoted.at}; run this again")
        self._may_unmark = True
        await load.check_empty()
        self._person.begin(await self._in_thread(export.count_rows))
        for nodes in export.read("nodes", NODES):
            await load.add_nodes(nodes)
        for table, columns in WANTED.items():
            await self._copy_table(table, export.read(table, columns), load)
        await load.add_totals()
        await load.begin_events(await self._in_thread(export.get_event_head))
        crash_point("promote_copied")
        self._person.say("comparing both sides")
        facts = await self._in_thread(export.list_facts)
        checks = compare(facts, await load.list_facts())
        if wrong := [check for check in checks if check.source != check.target]:
            raise PromotionFailed(
                "the copy differs from the source, and was dropped: " + "; ".join(map(_difference, wrong))
            )
        self._may_unmark = False  # now only the target has the result of the commit
        now = _now()
        await load.commit(mark.id, f"{socket.gethostname()}:{self._folder.resolve()}", now, facts)
        crash_point("promote_committed")
        end_mark(export.connection, mark, now)
        return Outcome(mark.id, load.shown, False, checks, 0)

    async def _copy_table(self, table: str, pages: Iterator[list[Any]], load: Load) -> None:
        def read() -> tuple[int, Any] | None:
            page = next(pages, None)
            return None if page is None else (len(page), load.convert(table, page))

        coming = self._in_thread(read)
        while (page := await coming) is not None:
            coming = self._in_thread(read)
            rows, converted = page
            await load.add(converted)
            crash_point("promote_page")
            self._person.advance(rows)

    async def _take_lock(self, source: apsw.Connection, load: Load) -> IO[str]:
        """Takes the folder's lock. If a node holds it and the operator agrees, the node is stopped."""
        if (lock := try_lock(self._folder)) is not None:
            return lock
        pid = self._find_node()
        if not self._person.confirm(
            f"A node runs on {self._folder} (process {pid}). It must stop first; its running attempts have time "
            "to end. Stop it?"
        ):
            raise PromotionFailed(f"the node (process {pid}) still runs, and nothing was moved")
        found, newest = get_versions(source)
        if found == newest:  # an older schema can't store the mark
            # Before it stops: a restart, by a supervisor for example, is refused from now on.
            had_none = get_mark(source) is None
            set_mark(source, load.shown, _now())
            self._may_unmark = had_none
            crash_point("promote_stopping")
        _ask_to_stop(pid)
        return await self._wait_for_lock(pid)

    def _find_node(self) -> int:
        """Returns the pid of the node on the folder. Raises PromotionFailed if another process holds the lock."""
        holder = find_holder(self._folder)
        if holder is not None and not holder.purpose:
            return holder.pid
        who = "a process that is not visible here"
        if holder is not None:
            who = f"process {holder.pid} (duetime {holder.purpose})"
        raise PromotionFailed(f"{self._folder} is in use by {who}: wait until it ends, then run this again")

    async def _wait_for_lock(self, pid: int) -> IO[str]:
        self._person.say(f"process {pid} was asked to stop: waiting for its running attempts")
        began_at = told_at = time.monotonic()
        while (lock := try_lock(self._folder)) is None:
            now = time.monotonic()
            if now - began_at > self._stop_seconds:
                raise PromotionFailed(
                    f"process {pid} was asked to stop and has not after {self._stop_seconds:.0f} s; nothing was moved. "
                    "Stop it yourself, then run this again."
                )
            if now - told_at > TELL_SECONDS:
                self._person.say(f"still waiting for process {pid}, since {now - began_at:.0f} s")
                told_at = now
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        return lock

    async def undo(self) -> str:
        """Removes the mark, so that nodes start on the folder again. Returns the target of the promotion."""
        with self._source() as source:
            mark = get_mark(source)
            if mark is None:
                raise PromotionFailed(f"{self._folder} was not promoted: there is nothing to undo")
            self._lock = try_lock(self._folder)
            if self._lock is None:
                self._find_node()  # the node was marked but not stopped, and still runs
            if self._load is not None:
                await self._empty(mark, self._load)
            elif not self._person.confirm(
                f"Without --to, {place(mark.target)} stays as it is. If a node is started there as well, both run the "
                "same jobs. Is it certain that no node runs there?"
            ):
                raise PromotionFailed("nothing was changed. With --to, the database is checked and emptied")
            crash_point("promote_emptied")
            remove_mark(source)
            return mark.target

    async def _empty(self, mark: Mark, load: Load) -> None:
        await load.open()
        try:
            promoted = await load.get_promotion(mark.id)
            if promoted is not None:
                await load.remove(mark.id, promoted)
            elif mark.target != load.shown:
                raise PromotionFailed(
                    f"{self._folder} went to {place(mark.target)}, and {place(load.shown)} has no data of it. "
                    "Use that database as --to"
                )
        except (asyncpg.PostgresError, *AWAY) as error:
            raise PromotionFailed(
                f"{place(load.shown)} could not be emptied ({error or type(error).__name__}): the folder stays marked. "
                "Run this again."
            ) from error
        finally:
            await load.close()

    @contextmanager
    def _source(self) -> Iterator[apsw.Connection]:
        source = open_source(self._folder)
        try:
            yield source
        finally:
            self._thread.shutdown()
            source.close()
            if self._lock is not None:
                self._lock.close()

    def _in_thread(self, deed: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, deed)

    def _broken_off(self, error: Exception) -> PromotionFailed:
        holds = "nothing was moved" if self._may_unmark else "run this again to find out whether it completed"
        return PromotionFailed(f"the copy broke off ({error or type(error).__name__}): {holds}")


def _ask_to_stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has ended meanwhile
    except PermissionError:
        raise PromotionFailed(
            f"process {pid} belongs to another user: stop it yourself, then run this again; nothing was moved"
        ) from None


def compare(source: Facts, target: Facts) -> list[Check]:
    names = [*source, *(name for name in target if name not in source)]
    return [Check(name, source.get(name, 0), target.get(name, 0)) for name in names]


def _difference(check: Check) -> str:
    return f"{check.what}: {check.source} here, {check.target} there"


def _now() -> int:
    return time.time_ns() // 1_000_000
