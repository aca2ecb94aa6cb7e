"""The audit: who changed what, when, and the values before and after. Append-only; hashes reveal a later change to it.

The entries of one commit are a page. A page's link is the hash of the link before it and of the page. So altering or
removing an entry requires altering every link after it. A store may keep several chains, one for each writer: pages of
different chains don't wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from duetime.domain.audited import LONGEST_VALUE, kept
from duetime.domain.errors import Conflict
from duetime.domain.identity import Caller
from duetime.domain.job import Definition

FIRST_LINK = bytes(32)  # before the first page of a chain
PROMOTED = -1  # the chain of a store with one writer, which keeps this number when it is promoted
BEFORE_ALL = -(2**15), 0  # a chain and link that come before all others

Head = tuple[int, str]  # the last link of a chain, and its hash in hex

_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One change. Its JSON is stored and hashed."""

    at: int
    tenant: str
    actor: str
    via: str
    request_id: str
    action: str  # job.create, job.change, …
    resource: str  # an id; empty for a batch, whose ids are in `after`
    before: Any = None
    after: Any = None

    @property
    def text(self) -> str:
        """Returns the JSON that is stored. A long definition is shortened (`domain.audited`)."""
        text = _encode(self)
        if len(text) > LONGEST_VALUE and (isinstance(self.before, Definition) or isinstance(self.after, Definition)):
            text = _encode(msgspec.structs.replace(self, before=_kept(self.before), after=_kept(self.after)))
        return text.decode()

    def filled(self, before: Any, after: Any) -> Entry:
        """Returns the entry with these values where it has none itself: only the store has them."""
        if before is None and after is None:
            return self
        before = before if self.before is None else self.before
        after = after if self.after is None else self.after
        return msgspec.structs.replace(self, before=before, after=after)


def entry(caller: Caller, at: int, action: str, resource: str, before: Any = None, after: Any = None) -> Entry:
    return Entry(at, caller.tenant, caller.user_id, caller.via, caller.request_id, action, resource, before, after)


def cancelled(purge: Entry, status: str) -> Entry:
    """Returns the entry for the cancellation by a purge: it takes several commits, and the first one ends the job."""
    return msgspec.structs.replace(
        purge, action="job.cancel", before={"status": status}, after={"status": "CANCELLED", "reason": "purge"}
    )


def redriven(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns what the audit records of a redrive. `pairs`: (dead execution, new execution)."""
    return {"executions": [{"dead": dead_id, "new": new_id} for dead_id, new_id in pairs]}


def own_entry(at: int, tenant: str, action: str, resource: str, after: Any) -> Entry:
    """Returns the entry for a change that Duetime itself makes to a job."""
    return Entry(at, tenant, "duetime", "engine", "", action, resource, None, after)


def sweep_entries(removed: Iterable[tuple[str, str]], now: int) -> list[Entry]:
    """Returns one entry a tenant for all of its removed jobs. `removed`: (job, tenant)."""
    by_tenant = defaultdict[str, list[str]](list)
    for job_id, tenant in removed:
        by_tenant[tenant].append(job_id)
    counted = {tenant: {"count": len(jobs), "jobs": jobs} for tenant, jobs in by_tenant.items()}
    return [own_entry(now, tenant, "job.sweep", "", after) for tenant, after in counted.items()]


def check_pruned(chain: int, link: int, found: str | None, pruned: int | None) -> None:
    """Raises Conflict unless the chain was pruned up to `link` before.

    `found`: the link's hash, which is not the expected one. `pruned`: the link of the chain's checkpoint.
    """
    if found is not None or pruned is None or pruned < link:
        raise Conflict(f"chain {chain} of the audit has no such link {link}: nothing was removed; verify the audit")


def digest(page: Sequence[str]) -> bytes:
    """Returns the hash of a page's entries. It includes their lengths, so no text can move from one to the next."""
    sha = sha256()
    for text in page:
        data = text.encode()
        sha.update(b"%d:" % len(data))
        sha.update(data)
    return sha.digest()


def link(before: bytes, page_digest: bytes) -> bytes:
    return sha256(before + page_digest).digest()


class Verifier:
    """Computes every link again, page by page in the order of each chain, and keeps the first difference.

    `earlier` are the heads of an earlier verification: each must still be in its chain. Only they reveal that a chain
    was cut off at its end, or was rewritten from some link on.
    `checkpoints` are the links up to which chains were pruned: a chain with a checkpoint goes on from there, and one
    without one begins with its first link. So pages removed without a checkpoint are reported as missing.
    """

    def __init__(
        self, earlier: Mapping[int, Head] | None = None, checkpoints: Mapping[int, Head] | None = None
    ) -> None:
        self.entries = 0
        self.heads: dict[int, Head] = dict(checkpoints or {})  # of what was seen so far
        self.broken: str | None = None  # a sentence
        self._earlier = dict(earlier or {})
        for chain, (number, hash_hex) in sorted(self.heads.items()):
            if self.broken is None and self._was_another(chain, number, hash_hex):
                self.broken = f"chain {chain}, link {number}: {_ANOTHER}"

    def add(self, chain: int, number: int, hash_hex: str, rows: Sequence[tuple[str, str, str]]) -> None:
        """Adds the next page of a chain: its link's number and hash, and its entries as (tenant, resource, text)."""
        if self.broken is None and (what := self._compare(chain, number, hash_hex, rows)) is not None:
            self.broken = f"chain {chain}, link {number}: {what}"
        self.entries += len(rows)
        self.heads[chain] = number, hash_hex

    def end(self) -> None:
        """Ends the verification: there are no more pages."""
        for chain, (number, _) in sorted(self._earlier.items()):
            last = self.heads.get(chain, _NO_HEAD)[0]
            if self.broken is None and last < number:
                self.broken = f"chain {chain}, link {last + 1}: it is gone; the chain went up to link {number} before"

    def _compare(self, chain: int, number: int, hash_hex: str, rows: Sequence[tuple[str, str, str]]) -> str | None:
        last, before = self.heads.get(chain, _NO_HEAD)
        if number != last + 1:
            return f"link {last + 1} is missing before it" if number > last else f"it comes after link {last}"
        if not hash_hex:
            return "there are entries, but no link over them"
        if link(bytes.fromhex(before), digest([text for _, _, text in rows])).hex() != hash_hex:
            return "its entries, or the link before it, are not those that were written"
        if self._was_another(chain, number, hash_hex):
            return _ANOTHER
        return next((what for row in rows if (what := _differing(*row)) is not None), None)

    def _was_another(self, chain: int, number: int, hash_hex: str) -> bool:
        known = self._earlier.get(chain)
        return known is not None and known[0] == number and known[1] != hash_hex


def is_older(texts: Sequence[str], before: int) -> bool:
    """Returns whether all entries of a page were made before that instant. False if one can't be read."""
    try:
        return all(_decode(text).at < before for text in texts)
    except msgspec.MsgspecError:
        return False


def _differing(tenant: str, resource: str, text: str) -> str | None:
    """Returns how the copied lookup columns differ from the entry. A wrong copy hides it, or shows it to others."""
    try:
        written = _decode(text)
    except msgspec.MsgspecError as error:
        return f"an entry can't be read: {error}"
    for name, copy, original in (("tenant", tenant, written.tenant), ("resource", resource, written.resource)):
        if copy != original:
            return f"an entry's {name} is '{original}', but it is kept under '{copy}'"
    return None


def _kept(value: Any) -> Any:
    return kept(value) if isinstance(value, Definition) else value


_ANOTHER = "its hash was another one before: the chain was rewritten"
_NO_HEAD: Head = (0, FIRST_LINK.hex())
_decode = msgspec.json.Decoder(Entry).decode
