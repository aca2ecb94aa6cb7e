"""The audit's chains: any change of a page is detected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from duetime.domain.audit import FIRST_LINK, Entry, Verifier, digest, entry, link, own_entry
from duetime.domain.identity import LOCAL

Row = tuple[str, str, str]


class Page(msgspec.Struct, frozen=True):
    chain: int
    number: int
    hash: str
    rows: tuple[Row, ...]


def row_of(made: Entry) -> Row:
    return made.tenant, made.resource, made.text


def chained(chain: int, pages: list[list[Entry]], before: bytes = FIRST_LINK, first: int = 1) -> list[Page]:
    made = []
    for number, page in enumerate(pages, first):
        rows = tuple(row_of(one) for one in page)
        before = link(before, digest([text for _, _, text in rows]))
        made.append(Page(chain, number, before.hex(), rows))
    return made


def verified(pages: list[Page], earlier: dict[int, tuple[int, str]] | None = None) -> Verifier:
    verifier = Verifier(earlier)
    for page in pages:
        verifier.add(page.chain, page.number, page.hash, page.rows)
    verifier.end()
    return verifier


texts = st.text(max_size=8)
entries = st.builds(
    Entry, st.integers(0, 2**53), texts, texts, texts, texts, texts, texts, st.none() | texts, st.none() | texts
)
A_FEW = [entry(LOCAL, n, "job.change", f"ü {n}", after={"n": n}) for n in range(3)] + [own_entry(9, "", "x", "", None)]
audits = st.dictionaries(
    st.integers(-1, 2),
    st.lists(st.lists(st.sampled_from(A_FEW), min_size=1, max_size=3), min_size=1, max_size=3),
    min_size=1,
    max_size=2,
).map(lambda chains: [page for chain in sorted(chains) for page in chained(chain, chains[chain])])
# Many drawn audits have a single page, which has nothing to swap.
quickly = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def some_pages() -> list[Page]:
    """Two chains, one that was promoted; three pages each, of two entries."""
    return [
        page
        for chain in (-1, 3)
        for page in chained(
            chain,
            [[entry(LOCAL, number, "job.pause", f"job {chain} {number} {n}") for n in range(2)] for number in range(3)],
        )
    ]


def test_unchanged_chains_are_valid():
    pages = some_pages()
    found = verified(pages)
    assert found.broken is None
    assert found.entries == 12
    assert found.heads == {-1: (3, pages[2].hash), 3: (3, pages[5].hash)}


def test_an_empty_audit_is_valid():
    found = verified([])
    assert (found.broken, found.entries, found.heads) == (None, 0, {})


@quickly
@given(audits)
def test_chains_of_any_entries_are_valid_also_against_their_own_heads(pages: list[Page]):
    found = verified(pages)
    assert found.broken is None
    assert found.entries == sum(len(page.rows) for page in pages)
    assert verified(pages, found.heads).broken is None


@quickly
@given(audits, st.data())
def test_chains_that_grew_are_valid_against_their_earlier_heads(pages: list[Page], data: st.DataObject):
    chains = {page.chain for page in pages}
    cut = {chain: data.draw(st.integers(0, max(p.number for p in pages if p.chain == chain))) for chain in chains}
    earlier = verified([page for page in pages if page.number <= cut[page.chain]]).heads
    assert verified(pages, earlier).broken is None


def replaced(page: Page, **fields: Any) -> Page:
    return msgspec.structs.replace(page, **fields)


def with_row(page: Page, place: int, row: Row) -> Page:
    return replaced(page, rows=(*page.rows[:place], row, *page.rows[place + 1 :]))


MUTATIONS = [
    "chain", "number", "hash", "tenant", "resource", "text", "field", "add entry", "remove entry", "swap entries",
    "move entry", "remove page", "repeat page", "swap pages", "forge page",
]  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
@quickly
@given(pages=audits, data=st.data())
def test_any_single_change_is_detected(mutation: str, pages: list[Page], data: st.DataObject):
    heads = verified(pages).heads
    at = data.draw(st.integers(0, len(pages) - 1))
    page = pages[at]
    place = data.draw(st.integers(0, len(page.rows) - 1))
    tenant, resource, text = page.rows[place]
    match mutation:
        case "chain":
            changed = [*pages[:at], replaced(page, chain=data.draw(st.integers(-2, 3))), *pages[at + 1 :]]
        case "number":
            changed = [*pages[:at], replaced(page, number=data.draw(st.integers(-1, 4))), *pages[at + 1 :]]
        case "hash":
            other = data.draw(st.sampled_from(["", *(p.hash for p in pages), FIRST_LINK.hex(), page.hash.upper()]))
            changed = [*pages[:at], replaced(page, hash=other), *pages[at + 1 :]]
        case "tenant":
            changed = [*pages[:at], with_row(page, place, (data.draw(texts), resource, text)), *pages[at + 1 :]]
        case "resource":
            changed = [*pages[:at], with_row(page, place, (tenant, data.draw(texts), text)), *pages[at + 1 :]]
        case "text":
            cut = data.draw(st.integers(0, len(text)))
            spoilt = text[:cut] + data.draw(texts) + text[data.draw(st.integers(cut, len(text))) :]
            changed = [*pages[:at], with_row(page, place, (tenant, resource, spoilt)), *pages[at + 1 :]]
        case "field":
            written = msgspec.json.decode(text, type=Entry)
            name = data.draw(st.sampled_from([f for f in Entry.__struct_fields__ if f != "at"]))
            forged = msgspec.structs.replace(written, **{name: data.draw(texts)})
            changed = [*pages[:at], with_row(page, place, row_of(forged)), *pages[at + 1 :]]
        case "add entry":
            rows = list(page.rows)
            rows.insert(place, row_of(data.draw(st.sampled_from(A_FEW))))
            changed = [*pages[:at], replaced(page, rows=tuple(rows)), *pages[at + 1 :]]
        case "remove entry":
            rows = [row for n, row in enumerate(page.rows) if n != place]
            changed = [*pages[:at], replaced(page, rows=tuple(rows)), *pages[at + 1 :]]
        case "swap entries":
            rows = list(page.rows)
            assume(len(set(rows)) > 1)
            with_place = data.draw(st.integers(0, len(rows) - 1))
            rows[place], rows[with_place] = rows[with_place], rows[place]
            changed = [*pages[:at], replaced(page, rows=tuple(rows)), *pages[at + 1 :]]
        case "move entry":
            assume(at + 1 < len(pages))
            following = pages[at + 1]
            changed = [
                *pages[:at],
                replaced(page, rows=page.rows[:-1]),
                replaced(following, rows=(page.rows[-1], *following.rows)),
                *pages[at + 2 :],
            ]
        case "remove page":
            changed = pages[:at] + pages[at + 1 :]
        case "repeat page":
            changed = [*pages[: at + 1], page, *pages[at + 1 :]]
        case "swap pages":
            others = [n for n, other in enumerate(pages) if other.chain == page.chain and n != at]
            assume(others)
            other_at = data.draw(st.sampled_from(others))
            changed = list(pages)
            changed[at], changed[other_at] = changed[other_at], changed[at]
        case "forge page":  # and every link after it: only the earlier heads show it
            written = msgspec.json.decode(text, type=Entry)
            forged = msgspec.structs.replace(written, actor=written.actor + "x")
            rows = with_row(page, place, row_of(forged)).rows
            tail = [p for p in pages if p.chain == page.chain and p.number > page.number]
            before = FIRST_LINK if page.number == 1 else bytes.fromhex(pages[at - 1].hash)
            made = [
                [msgspec.json.decode(t, type=Entry) for _, _, t in some] for some in (rows, *(p.rows for p in tail))
            ]
            anew = {(p.chain, p.number): p for p in chained(page.chain, made, before, page.number)}
            changed = [anew.get((p.chain, p.number), p) for p in pages]
            assert verified(changed).broken is None
    assume(changed != pages)
    assert verified(changed, heads).broken is not None


def test_texts_cannot_be_shifted_from_one_entry_into_the_next():
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["1:a"]) != digest(["", "a"])
    assert digest([]) != digest([""])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda p: [p[0], p[2], *p[3:]], "chain -1, link 3: link 2 is missing before it"),
        (lambda p: [*p[:3], *p[4:]], "chain 3, link 2: link 1 is missing before it"),
        (lambda p: [p[1], *p[1:]], "chain -1, link 2: link 1 is missing before it"),
        (lambda p: [*p[:2], *p[1:]], "chain -1, link 2: it comes after link 2"),
        (lambda p: p[:-1], "chain 3, link 3: it is gone; the chain went up to link 3 before"),
        (lambda p: p[:3], "chain 3, link 1: it is gone; the chain went up to link 3 before"),
        (lambda p: [*p, replaced(p[-1], number=4, hash="")],
         "chain 3, link 4: there are entries, but no link over them"),
        (lambda p: [replaced(p[0], rows=p[0].rows[1:]), *p[1:]],
         "chain -1, link 1: its entries, or the link before it, are not those that were written"),
        (lambda p: [with_row(p[0], 1, ("acme", *p[0].rows[1][1:])), *p[1:]],
         "chain -1, link 1: an entry's tenant is 'default', but it is kept under 'acme'"),
        (lambda p: [with_row(p[0], 0, ("default", "x", p[0].rows[0][2])), *p[1:]],
         "chain -1, link 1: an entry's resource is 'job -1 0 0', but it is kept under 'x'"),
        (lambda p: [*p[:3], *chained(3, [[entry(LOCAL, 1, "job.cancel", "x")]] * 3)],
         "chain 3, link 3: its hash was another one before: the chain was rewritten"),
    ],
)  # fmt: skip
def test_the_first_broken_place_is_reported_in_a_sentence(spoil: Any, sentence: str):
    pages = some_pages()
    assert verified(spoil(pages), verified(pages).heads).broken == sentence


def test_of_several_broken_places_the_first_is_reported_and_all_entries_are_counted():
    pages = some_pages()
    spoilt = [pages[0], replaced(pages[1], rows=pages[1].rows[:1]), *pages[2:4], pages[5]]
    found = verified(spoilt)
    assert found.broken is not None
    assert found.broken.startswith("chain -1, link 2: ")
    assert found.entries == 9


def test_an_invalid_entry_is_reported_even_if_the_chain_is_valid():
    text = '[1,"a"]'
    found = verified([Page(0, 1, link(FIRST_LINK, digest([text])).hex(), (("a", "b", text),))])
    assert found.broken is not None
    assert found.broken.startswith("chain 0, link 1: an entry can't be read: ")


@quickly
@given(entries)
def test_an_entry_is_read_as_it_was_written(made: Entry):
    assert msgspec.json.decode(made.text, type=Entry) == made


def test_the_store_fills_in_missing_values_of_an_entry():
    bare, filled_entry = entry(LOCAL, 1, "a", "r"), entry(LOCAL, 1, "a", "r", before="b", after="a")
    assert bare.filled(None, None) is bare
    assert (bare.filled("x", "y").before, bare.filled("x", "y").after) == ("x", "y")
    assert filled_entry.filled("x", "y") == filled_entry
    half = own_entry(1, "acme", "job.pause", "r", {"status": "PAUSED"}).filled("x", "y")
    assert (half.actor, half.via, half.before, half.after) == ("duetime", "engine", "x", {"status": "PAUSED"})
