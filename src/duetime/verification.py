"""`duetime audit verify`: every link of the audit's chains worked out anew, while nodes may be running.

What they write meanwhile comes at the end of a chain, and is verified with it or next time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from duetime.beside import open_beside
from duetime.domain.audit import BEFORE_ALL, Head, Verifier
from duetime.settings import Setting
from duetime.store import StoreUnusable

__all__ = ["Head", "StoreUnusable", "Verifier", "verify"]

PAGES = 200  # commits at once


async def verify(
    settings: Mapping[str, Setting], earlier: Mapping[int, Head] | None, tell: Callable[[int], None]
) -> Verifier:
    """`tell` hears how many entries were looked at so far. Raises StoreUnusable."""
    verifier = Verifier(earlier)
    async with open_beside(settings) as store:
        after = BEFORE_ALL
        while pages := await store.list_audit_pages(after, PAGES):
            for page in pages:
                verifier.add(page.chain, page.link, page.hash, page.rows)
            after = pages[-1].chain, pages[-1].link
            tell(verifier.entries)
    verifier.end()
    return verifier
