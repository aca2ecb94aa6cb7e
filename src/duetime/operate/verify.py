"""`duetime audit verify` and `export`: every link of the audit's chains worked out anew, while nodes may be running.

What they write meanwhile comes at the end of a chain, and is verified with it or next time. What they prune meanwhile
is not missing: then it is done again, from the new checkpoints on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from duetime.audit_files import files_of, verify_files, writing
from duetime.domain.audit import BEFORE_ALL, FIRST_LINK, Head, Verifier
from duetime.domain.audit_export import ExportedPage, ExportVerifier, encode_line
from duetime.operate.offline import open_offline
from duetime.ports.store import AuditPage
from duetime.settings import Setting
from duetime.store import StoreUnusable
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite.offline import OfflineSqlite

__all__ = ["ExportVerifier", "Head", "StoreUnusable", "Verifier", "export", "files_of", "verify", "verify_files"]

PAGES = 200  # commits at once
MOST_TRIES = 10

Hear = Callable[[AuditPage, str], None]  # a page, and the hash of the link before it


async def verify(
    settings: Mapping[str, Setting], earlier: Mapping[int, Head] | None, tell: Callable[[int], None]
) -> Verifier:
    """`tell` hears how many entries were looked at so far. Raises StoreUnusable."""
    async with open_offline(settings) as store:
        for _ in range(MOST_TRIES):
            verifier, is_certain = await _walk(store, earlier, tell, lambda page, before: None)
            if is_certain:
                break
        return verifier


async def export(settings: Mapping[str, Setting], path: Path, tell: Callable[[int], None]) -> Verifier:
    """All that the database has of the audit, to one file. Raises StoreUnusable if it is not whole, and OSError."""
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
    """All pages. False: something is missing that may have been pruned meanwhile."""
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
