"""The hosts that an operator's list contains."""

from __future__ import annotations

import pytest

from duetime.domain.targets import AllowedDomains, parse_domains


@pytest.mark.parametrize(
    ("listed", "host", "has"),
    [
        ("example.com", "example.com", True),
        ("Example.COM ", "example.com", True),
        ("example.com", "www.example.com", False),
        ("example.com", "notexample.com", False),
        ("*.example.com", "www.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "notexample.com", False),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", True),
        ("localhost", "localhost", True),
        ("203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.77", False),
        ("[2001:DB8::0:1]", "2001:db8::1", True),
    ],
)
def test_a_name_matches_itself_and_a_star_matches_all_subdomains(listed: str, host: str, has: bool):
    assert parse_domains([listed]).has(host) is has


def test_several_names_form_one_list():
    found = parse_domains(["a.example", " ", "*.b.example", "*.c.example"])
    assert found == AllowedDomains(frozenset({"a.example"}), (".b.example", ".c.example"))
    assert [found.has(host) for host in ("a.example", "x.b.example", "x.c.example", "x.a.example")] == [
        True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "part",
    ["*", "*.", "a.*.example", "http://a.example", "a.example:80", "a.example/x", "bücher.example", "a..b", "-a.b"],
)
def test_an_invalid_host_is_refused(part: str):
    with pytest.raises(ValueError, match="must be hosts such as"):
        parse_domains([part])
