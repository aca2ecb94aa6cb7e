"""Exports of the audit verify by themselves: any change, gap or cut within one is detected."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from duetime.audit_files import files_of, verify_files, writing
from duetime.domain.audit import FIRST_LINK, digest, link
from duetime.domain.audit_export import ExportedPage, ExportVerifier, encode_line
from samples import entry_of


def chain(links: int, number: int = 3) -> list[ExportedPage]:
    pages: list[ExportedPage] = []
    before = FIRST_LINK
    for at in range(1, links + 1):
        entries = tuple(entry_of("key.create", f"key-{at}-{n}").text for n in range(2))
        after = link(before, digest(entries))
        pages.append(ExportedPage(number, at, before.hex(), after.hex(), entries))
        before = after
    return pages


def verify(*pages: ExportedPage | bytes) -> ExportVerifier:
    verifier = ExportVerifier()
    for number, page in enumerate(pages, 1):
        verifier.add(f"line {number}", page if isinstance(page, bytes) else encode_line(page))
    return verifier


PAGES = chain(4)


def test_an_export_is_valid_and_has_its_last_link():
    found = verify(*PAGES)
    assert (found.broken, found.entries, found.heads) == (None, 8, {3: (4, PAGES[-1].hash)})


def test_an_export_may_begin_with_any_link_and_hold_several_chains():
    others = chain(2, number=-1)
    mixed = [PAGES[1], others[0], PAGES[2], others[1], PAGES[3]]
    found = verify(*mixed)
    assert (found.broken, found.heads) == (None, {3: (4, PAGES[-1].hash), -1: (2, others[-1].hash)})


def altered(page: ExportedPage) -> ExportedPage:
    return msgspec.structs.replace(page, entries=(page.entries[0].replace("ann", "bob"), page.entries[1]))


HARMED = {
    "an altered entry": [PAGES[0], altered(PAGES[1]), *PAGES[2:]],
    "a removed entry": [PAGES[0], msgspec.structs.replace(PAGES[1], entries=PAGES[1].entries[:1]), *PAGES[2:]],
    "a removed link": [PAGES[0], *PAGES[2:]],
    "links in another order": [PAGES[0], PAGES[2], PAGES[1], PAGES[3]],
    "a link written anew": [PAGES[0], chain(2, 3)[1], msgspec.structs.replace(PAGES[2], before="00" * 32)],
    "a first link with one before": [msgspec.structs.replace(PAGES[0], before=PAGES[0].hash)],
    "a first link that is no hash": [msgspec.structs.replace(PAGES[0], before="x")],
    "a line that was cut off": [PAGES[0], encode_line(PAGES[1])[:-9]],
    "an empty line": [PAGES[0], b""],
    "another file": [b'{"chain": 3}'],
    "an altered repeat": [*PAGES, altered(PAGES[1])],
}


@pytest.mark.parametrize("harm", HARMED)
def test_tampering_with_an_export_is_reported_with_its_line(harm: str):
    found = verify(*HARMED[harm])
    assert str(found.broken).startswith("line ")


def test_a_repeated_export_is_valid():
    assert verify(*PAGES[:3], *PAGES).broken is None


def test_files_of_a_folder_are_read_in_the_order_of_their_links(tmp_path: Path):
    for first, last in pairwise((0, 2, 3, 4)):
        with writing(tmp_path / f"chain3-links{first + 1:012}-{last:012}.jsonl") as write:
            for page in PAGES[first:last]:
                write(encode_line(page))
    found = verify_files(files_of(tmp_path))
    assert (found.broken, found.entries) == (None, 8)
    files_of(tmp_path)[1].unlink()
    found = verify_files(files_of(tmp_path))
    assert "chain3-links000000000004-000000000004.jsonl, line 1: chain 3, link 4: link 3 is missing" in str(
        found.broken
    )


def test_an_unfinished_file_is_removed(tmp_path: Path):
    def break_off() -> None:
        with writing(tmp_path / "audit.jsonl") as write:
            write(b"{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert list(tmp_path.iterdir()) == []
