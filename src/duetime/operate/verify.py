"""`duetime audit verify` and `export`: compute every link of the audit's chains again, while nodes may be running.

Entries that nodes write meanwhile are at the end of a chain, and are verified in this run or the next. Entries that
nodes prune meanwhile are not missing: the verification starts again from the new checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from duetime.audit_files import writing
from duetime.domain.audit import BEFORE_ALL, FIRST_LINK, Head, Verifier
from duetime.domain.audit_export import ExportedPage, encode_line
from duetime.operate.offline import open_offline
from duetime.ports.store import AuditPage
from duetime.settings.table import Settings
from duetime.store import StoreUnusable
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite.offline import OfflineSqlite

PAGES = 200  # commits at once
MOST_TRIES = 10

Hear = Callable[[AuditPage, str], None]  # a page, and the hash of the link before it


async def verify(settings: Settings, earlier: Mapping[int, Head] | None, tell: Callable[[int], None]) -> Verifier:
    """Verifies all chains. `tell` is called with the number of entries checked so far. Raises StoreUnusable."""
    async with open_offline(settings) as store:
        for _ in range(MOST_TRIES):
            verifier, is_certain = await _walk(store, earlier, tell, lambda page, before: None)
            if is_certain:
                break
        return verifier


async def export(settings: Settings, path: Path, tell: Callable[[int], None]) -> Verifier:
    """Writes the database's whole audit to one file. Raises StoreUnusable if the audit is not whole, and OSError."""
    async with open_offline(settings) as store:
        with writing(path) as write:

            def keep(page: AuditPage, before: str) -> None:
                entries = tuple(text for _, _, text in page.rows)
                write(encode_line(ExportedPage(page.chain, page.link, before, page.hash, entries)))

            verifier, is_certain = await _walk(store, None, tell, keep)
            if verifier.broken is not None:
                what = verifier.broken if is_certain else "it was pruned meanwhile; run this again"
                raise StoreUnusable(f"the audit was not exported, {path} not written: {what}")
    return verifier


async def _walk(
    store: PostgresStore | OfflineSqlite, earlier: Mapping[int, Head] | None, tell: Callable[[int], None], hear: Hear
) -> tuple[Verifier, bool]:
    """Verifies all pages. The second value is False if entries are missing that may have been pruned meanwhile."""
    checkpoints = await store.list_audit_checkpoints()
    verifier = Verifier(earlier, {it.chain: (it.link, it.hash) for it in checkpoints})
    after = BEFORE_ALL
    while pages := await store.list_audit_pages(after, PAGES):
        for page in pages:
            hear(page, verifier.heads.get(page.chain, (0, FIRST_LINK.hex()))[1])
            verifier.add(page.chain, page.link, page.hash, page.rows)
        after = pages[-1].chain, pages[-1].link
        tell(verifier.entries)
    verifier.end()
    return verifier, verifier.broken is None or await store.list_audit_checkpoints() == checkpoints
