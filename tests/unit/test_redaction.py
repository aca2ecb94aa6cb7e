"""What an attempt brings back is kept without the secrets that it was sent with, in whichever form they come."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.http_rules import HIDDEN
from duetime.domain.payloads import HttpRequest
from duetime.domain.redaction import LONGEST_RESPONSE, list_secrets, redact
from samples import URL

SECRET = 'pa/ss "wörd"+&1'


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%2F", "%2f").replace("%C3%B6", "%c3%b6").replace("%2B", "%2b")
        .replace("%26", "%26").replace("%22", "%22"),
        html.escape(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"ann:{SECRET}".encode()).decode(),
        base64.b64encode(f"anna:{SECRET}".encode()).decode(),
        base64.b64encode(f"ann-a:{SECRET}!".encode()).decode(),
    ],
)  # fmt: skip
def test_every_common_form_is_hidden(shown):
    text = redact(f"<{shown}> again {shown}.", [SECRET])
    assert HIDDEN in text
    assert "again" in text
    for form in (SECRET, "ss", "rd", base64.b64encode(SECRET.encode()).decode()[4:10]):
        assert form not in text.replace("again", "")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4), st.text(), st.text())
def test_no_secret_is_left_whatever_is_around_it(secret, before, after):
    text = redact(before + secret + after, [secret])
    assert secret not in text.replace(HIDDEN, "\0")


def test_secrets_that_overlap_leave_no_rest():
    assert redact("x abcdefgh y", ["abcd", "cdefgh"]) == f"x {HIDDEN} y"
    assert redact("x abcdefgh y", ["abcdefgh", "bcde"]) == f"x {HIDDEN} y"
    assert redact("abcdabcd-abcd", ["abcd"]) == f"{HIDDEN}-{HIDDEN}"


def test_one_that_was_cut_off_at_the_end_is_hidden_as_well():
    token = "0123456789abcdef"
    text = "x" * (LONGEST_RESPONSE - 9) + token[:9]
    assert redact(text, [token]) == "x" * (LONGEST_RESPONSE - 9) + HIDDEN
    assert redact(token[:9], [token]) == token[:9]  # this one was not cut
    repeated = "aaaab" * 3
    assert redact("x" * 990 + repeated[:10], [repeated]) == "x" * 990 + HIDDEN


def test_text_without_a_secret_stays_the_same():
    assert redact('{"ok": true}', ["s3cret"]) == '{"ok": true}'
    assert redact("", ["s3cret"]) == ""


def test_what_counts_as_secret_of_a_request():
    basic = "Basic " + base64.b64encode(b"ann:hunter22").decode()
    payload = HttpRequest(
        URL,
        headers={
            "Authorization": "Bearer abc123",
            "Proxy-Auth": basic,
            "Cookie": "session=0123456789abcdefgh; a=b",
            "Content-Type": "application/json",
            "User-Agent": "curl/8.0",
            "X-Debug": "true",
            "X-Pin": "123",
        },
        body={"t": {"a": "deep-one", "b": [471100, False, None]}, "open": "visible"},
        secret=("/body/t",),
    )
    found = list_secrets(payload)
    assert found == [
        "abc123", basic.removeprefix("Basic "), "ann:hunter22", "hunter22", "session=0123456789abcdefgh; a=b",
        "0123456789abcdefgh", "deep-one", "471100",
    ]  # fmt: skip
    assert redact("the token abc123 of 0123456789abcdefgh, true, application/json", found) == (
        f"the token {HIDDEN} of {HIDDEN}, true, application/json"
    )


def test_strange_credentials_are_no_error():
    for value in ("Basic !!!!!!", "Basic /////w==", "Bearer", "Bearer ", "", " "):
        list_secrets(HttpRequest(URL, headers={"A": value}))
