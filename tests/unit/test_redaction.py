"""The result of an attempt is stored without the secrets that the attempt had, in any of their forms."""

from __future__ import annotations

import base64
import html
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.domain.http_rules import HIDDEN
from duetime.domain.payloads import HttpRequest
from duetime.domain.redaction import (
    FEW_STARTS,
    LONGEST_RESPONSE,
    PIECE,
    Redactor,
    StreamRedactor,
    list_secrets,
    redact,
)
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
def test_no_secret_is_left_in_any_surrounding_text(secret, before, after):
    text = redact(before + secret + after, [secret])
    assert secret not in text.replace(HIDDEN, "\0")


def test_overlapping_secrets_are_hidden_completely():
    assert redact("x abcdefgh y", ["abcd", "cdefgh"]) == f"x {HIDDEN} y"
    assert redact("x abcdefgh y", ["abcdefgh", "bcde"]) == f"x {HIDDEN} y"
    assert redact("abcdabcd-abcd", ["abcd"]) == f"{HIDDEN}-{HIDDEN}"


def test_a_secret_that_is_cut_off_at_the_end_is_hidden_too():
    token = "0123456789abcdef"
    text = "x" * (LONGEST_RESPONSE - 9) + token[:9]
    assert redact(text, [token]) == "x" * (LONGEST_RESPONSE - 9) + HIDDEN
    assert redact(token[:9], [token]) == token[:9]  # this one was not cut
    repeated = "aaaab" * 3
    assert redact("x" * 990 + repeated[:10], [repeated]) == "x" * 990 + HIDDEN


def test_text_without_a_secret_stays_the_same():
    assert redact('{"ok": true}', ["s3cret"]) == '{"ok": true}'
    assert redact("", ["s3cret"]) == ""


def test_the_secrets_of_a_request_are_found():
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


def test_malformed_credentials_raise_no_error():
    for value in ("Basic !!!!!!", "Basic /////w==", "Bearer", "Bearer ", "", " "):
        list_secrets(HttpRequest(URL, headers={"A": value}))


# The amount of work


def steps_of(work: Callable[[], Any]) -> int:
    """Returns how many lines of the module are run."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith("/redaction.py"):
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def numbered(count: int) -> list[str]:
    """Secrets that are alike up to their last characters."""
    return [f"the-same-start-{number:06}" for number in range(count)]


def nested(count: int) -> list[str]:
    """Secrets each of which is the beginning of the next."""
    return ["a" * length for length in range(4, 4 + count)]


TEXTS = {
    "nothing of them": "0123456789" * 150,
    "their beginning, again and again": "the-same-start-" * 100,
    "what all of them are made of": "a" * 1500,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("make", [numbered, nested])
def test_a_text_takes_as_many_steps_with_many_secrets_as_with_few(make, text):
    few, many = Redactor(make(FEW_STARTS + 2 * PIECE)), Redactor(make(2000))
    assert steps_of(lambda: many.redact(text)) <= 1.5 * steps_of(lambda: few.redact(text)) + 100


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_that_is_twice_as_long_takes_twice_as_many_steps(text):
    redactor = Redactor(numbered(500) + nested(500))
    assert steps_of(lambda: redactor.redact(text + text)) <= 2.2 * steps_of(lambda: redactor.redact(text))


def test_each_position_of_a_text_takes_few_steps_with_any_secrets():
    """Secrets of all lengths with the same beginning, and a text that is that beginning everywhere but matches none."""
    secrets = ["a" * (length - 1) + "b" for length in range(5, 300)]
    text = "a" * 800
    assert steps_of(lambda: Redactor(secrets).find(text)) - steps_of(lambda: Redactor(secrets)) <= 4 * PIECE * len(text)


def test_building_takes_steps_in_proportion_to_the_secrets():
    assert steps_of(lambda: Redactor(numbered(1000))) <= 11 * steps_of(lambda: Redactor(numbered(100)))
    long = steps_of(lambda: Redactor(["x" * 100_000]))
    assert long <= 11 * steps_of(lambda: Redactor(["x" * 10_000]))


# Texts that arrive in parts


@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 32, 33, 1000])
@pytest.mark.parametrize(
    "secret", ["hunter22", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 5, "abcabcabcabcabd" * 9]
)
def test_a_secret_is_hidden_however_the_text_is_cut_into_parts(secret, size):
    text = f"before {secret} between {secret}{secret} and {secret[:-1]} after"
    stream = StreamRedactor(Redactor([secret]))
    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*shown, stream.end()]) == Redactor([secret]).redact(text)


@given(
    st.lists(st.text("ab\n", min_size=4, max_size=80), min_size=1, max_size=6),
    st.lists(st.text("ab\n", max_size=60), max_size=20),
)
@example(["b--b", "ab--ba"], ["a", "b--b"])
@example(["b--b", "ab--ba"], ["a", "b--b", "", "a"])
def test_a_stream_hides_what_the_whole_text_would_hide(secrets, parts):
    redactor = Redactor(secrets)
    stream = StreamRedactor(redactor)
    shown = "".join([*map(stream.feed, parts), stream.end()])
    whole = "".join(parts)
    assert shown == _hidden(whole, redactor)
    assert not any(secret in shown for secret in secrets)


def _hidden(text: str, redactor: Redactor) -> str:
    parts, shown_until = [], 0
    for begin, end in redactor.find(text):
        parts += [text[shown_until:begin], HIDDEN]
        shown_until = end
    return "".join([*parts, text[shown_until:]])


def test_text_that_can_not_begin_a_secret_is_returned_at_once():
    stream = StreamRedactor(Redactor(["hunter22"]))
    assert stream.feed("a line\n") == "a line\n"
    assert stream.feed("now hunt") == "now "
    assert stream.feed("ing\n") == "hunting\n"


def test_a_long_secret_is_hidden_whole_and_where_it_is_cut_off():
    secret = "".join(chr(0x4E00 + number) for number in range(5 * PIECE + 7))
    assert redact(f"x {secret} y", [secret]) == f"x {HIDDEN} y"
    for length in range(PIECE, len(secret)):
        text = "x" * LONGEST_RESPONSE + secret[:length]
        assert redact(text, [secret]) == "x" * LONGEST_RESPONSE + HIDDEN, length
