"""Retention of the audit: exports entries beyond their retention age, then removes them up to a checkpoint.

It removes only entries that were exported first and that verify. A chain that was altered stays as it is, so that it
can be investigated.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import structlog

from duetime.domain.audit import BEFORE_ALL, FIRST_LINK, Head, Verifier, is_older
from duetime.domain.audit_export import ExportedPage, encode_line
from duetime.domain.commands import PruneAudit
from duetime.domain.instants import DAY, HOUR
from duetime.ports.archive import AuditArchive
from duetime.ports.store import AuditPage, Store, apply_one

LINKS = 200  # at once: one file and one write
REST = HOUR
WAIT = 7 * DAY  # a chain is pruned when its oldest link is this much past its retention age. Then all links past that
# age are removed. So there are few files, not one per chain and day
LAST_LINK = 2**40  # of a chain: more than any chain has

log = structlog.get_logger()


class AuditRetention:
    def __init__(self, store: Store, archive: AuditArchive, age_seconds: float) -> None:
        self._store = store
        self._archive = archive
        self._age = int(age_seconds * 1000)
        self._after = BEFORE_ALL  # the chain and link looked at last
        self._pruning: int | None = None  # the chain that may have more links past their age
        self._rest_until = 0

    async def prune(self, now: int) -> bool:
        """Prunes a page of one chain, or looks at the next chain. Returns whether there is more to do."""
        if now < self._rest_until <= now + REST:  # further ahead: the clock was set back
            return False
        before = now - self._age
        pages = await self._store.list_audit_pages(self._after, 1 if self._pruning is None else LINKS)
        if not pages:
            self._after, self._pruning, self._rest_until = BEFORE_ALL, None, now + REST
            return False
        chain = pages[0].chain
        if self._pruning != chain:
            self._pruning = chain if _is_older(pages[0], before - WAIT) else None
            self._after = self._after if self._pruning is not None else (chain, LAST_LINK)
            return True
        page = list(takewhile(lambda it: it.chain == chain and _is_older(it, before), pages))
        if page and await self._remove(page, now):
            self._after = chain, page[-1].link
        if len(page) < LINKS or self._after[1] != page[-1].link:
            self._pruning, self._after = None, (chain, LAST_LINK)
        return True

    async def _remove(self, page: Sequence[AuditPage], now: int) -> bool:
        chain, last = page[0].chain, page[-1]
        checkpoints = {it.chain: (it.link, it.hash) for it in await self._store.list_audit_checkpoints()}
        verifier = Verifier(None, checkpoints)
        for found in page:
            verifier.add(found.chain, found.link, found.hash, found.rows)
        if verifier.broken is not None:
            log.error(
                "the audit was altered, and is not pruned: keep the database as it is, and see `duetime audit verify`",
                found=verifier.broken,
            )
            return False
        await self._archive.save(chain, page[0].link, last.link, _lines(page, checkpoints.get(chain)))
        removed = await apply_one(self._store, PruneAudit(now, chain, last.link, last.hash))
        log.info("the audit was pruned", chain=chain, up_to_link=last.link, entries=removed)
        return True


def _is_older(page: AuditPage, before: int) -> bool:
    return is_older([text for _, _, text in page.rows], before)


def _lines(pages: Sequence[AuditPage], checkpoint: Head | None) -> list[bytes]:
    before = FIRST_LINK.hex() if checkpoint is None else checkpoint[1]
    lines = []
    for page in pages:
        entries = tuple(text for _, _, text in page.rows)
        lines.append(encode_line(ExportedPage(page.chain, page.link, before, page.hash, entries)))
        before = page.hash
    return lines
