"""The audit outside of a database: one line of JSON for each link. The lines can be verified without the database.

A line holds the hash of the link before it, its own hash, and its entries as they were hashed. So a file proves that
nothing in it was altered, and that no link is missing between the first and the last one of a chain. The first line's
`before` and the last line's `hash` prove that it continues the file before it, and the chain in the database.
"""

from __future__ import annotations

import msgspec

from duetime.domain.audit import FIRST_LINK, Entry, Head, Verifier, digest, link


class ExportedPage(msgspec.Struct, frozen=True):
    """The entries of one commit. `before` is the hash of the link before; hashes are in hex."""

    chain: int
    link: int
    before: str
    hash: str
    entries: tuple[str, ...]  # each the JSON of an Entry, exactly as it was hashed


encode_line = msgspec.json.Encoder().encode
_decode_page = msgspec.json.Decoder(ExportedPage).decode
_decode_entry = msgspec.json.Decoder(Entry).decode


class ExportVerifier:
    """Verifies exported lines. The lines of a chain must be in the order of its links; lines of others may lie between.

    A chain may begin with any link. A link may come a second time, if an interrupted export was repeated; then its
    entries must match its hash.
    """

    def __init__(self) -> None:
        self._verifier = Verifier()
        self._broken: str | None = None

    @property
    def entries(self) -> int:
        return self._verifier.entries

    @property
    def heads(self) -> dict[int, Head]:
        return self._verifier.heads

    @property
    def broken(self) -> str | None:
        """Returns a sentence about the first line that was changed; None if there is none."""
        return self._broken

    def add(self, place: str, line: bytes) -> None:
        """Adds a line. `place` names the line in `broken`."""
        if self._broken is None and (what := self._add(line)) is not None:
            self._broken = f"{place}: {what}"

    def _add(self, line: bytes) -> str | None:
        try:
            page = _decode_page(line)
            entries = [_decode_entry(text) for text in page.entries]
            before = bytes.fromhex(page.before)
        except (msgspec.MsgspecError, ValueError) as error:
            return f"it is no line of an export, or not a whole one ({error})"
        where = f"chain {page.chain}, link {page.link}"
        seen = self.heads.get(page.chain)
        if seen is None:
            if page.link <= 1 and before != FIRST_LINK:
                return f"{where}: there is no link before the first"
            self.heads[page.chain] = page.link - 1, page.before
        elif page.link <= seen[0]:
            is_whole = link(before, digest(page.entries)).hex() == page.hash
            return None if is_whole else f"{where}: its entries are not those that were written"
        elif page.link == seen[0] + 1 and page.before != seen[1]:
            return f"{where}: the link before it was another one"
        rows = [(entry.tenant, entry.resource, text) for entry, text in zip(entries, page.entries, strict=True)]
        self._verifier.add(page.chain, page.link, page.hash, rows)
        return self._verifier.broken
