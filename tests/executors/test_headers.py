from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from duetime.domain.http_rules import header_problem, url_problem
from duetime.domain.sampling import trace_id
from duetime.executors.answer import kept_text, retry_after_seconds
from duetime.executors.headers import check_headers, encode_body, rfc3339, signature, signing_keys
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt
from executors.conftest import LOOPBACK
from executors.hostile import Hostile

NEW = "whsec_" + b64encode(b"n" * 32).decode()
OLD = "whsec_" + b64encode(b"o" * 24).decode()


async def test_a_receivers_own_verifier_accepts_our_signature_with_either_key(
    target: Hostile, attempt: Callable[..., Attempt]
):
    executor = HttpExecutor(allow=LOOPBACK, keys_of=lambda tenant: signing_keys((NEW, OLD)))
    await executor.execute(attempt(target.url(), body={"amount": 1, "name": "ü"}))
    await executor.stop()
    got = target.received[0]
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(got.body, got.headers) == {"amount": 1, "name": "ü"}
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + b64encode(b"x" * 24).decode()).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(got.body + b" ", got.headers)


def test_the_signature_is_the_one_of_the_reference_implementation():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    expected = Webhook(NEW).sign("msg_1", at, '{"a":1}')
    assert signature(signing_keys([NEW]), "msg_1", int(at.timestamp()), b'{"a":1}') == expected


def test_a_secret_without_the_prefix_is_used_as_it_is():
    assert signing_keys(["plain", NEW]) == (b"plain", b"n" * 32)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_no base64!"])
def test_an_invalid_secret_is_refused_and_not_shown(secret: str):
    with pytest.raises(ValueError) as caught:
        signing_keys([secret])
    assert "no base64!" not in str(caught.value)


def test_a_body_is_sent_as_it_is_or_as_json_or_not_at_all():
    assert encode_body(None) == (b"", None)
    assert encode_body("") == (b"", "text/plain; charset=utf-8")
    assert encode_body("a") == (b"a", "text/plain; charset=utf-8")
    assert encode_body({"a": [1, None]}) == (b'{"a":[1,null]}', "application/json")
    assert encode_body(0) == (b"0", "application/json")
    assert encode_body(False) == (b"false", "application/json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", "x"),
        ("Webhook-Signature", "x"),
        ("Duetime-Attempt", "x"),
        ("DUETIME-ANYTHING", "x"),
        ("Idempotency-Key", "x"),
        ("traceparent", "x"),
        ("Host", "x"),
        ("content-length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Proxy-Authorization", "x"),
        ("", "x"),
        ("a b", "x"),
        ("a:b", "x"),
        ("naïve", "x"),
        ("X-A", "a\r\nb"),
        ("X-A", "a\nb"),
        ("X-A", "a\x00b"),
        ("X-A", " a"),
        ("X-A", "a\t"),
        ("X-A", "a\x85b"),
        ("X-A", "€"),
        ("X-A", "x" * 8193),
    ],
)
def test_a_reserved_header_is_refused(name: str, value: str):
    assert header_problem(name, value) is not None
    assert len(check_headers({name: value, "X-Fine": "1"})) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("Authorization", "Bearer abc"), ("X-A", ""), ("X-A", "a b\tc"), ("x_a", "é"), ("User-Agent", "me/1")],
)
def test_other_headers_are_allowed(name: str, value: str):
    assert header_problem(name, value) is None


def test_a_problem_never_repeats_the_value():
    assert "s3cret" not in (header_problem("X-Key", "s3cret\n") or "")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "HTTPS://example.com:8443/a?b#c",
        "http://127.0.0.1/",
        "http://a:65535",
        "http://a:1/x",
        "https://a:0080/",
        "http://a:/",
        "http://[::1]/",
        "http://[::1]:65535/x",
        "http://a/:99999",
        "http://a?b=:x",
    ],
)
def test_a_url_is_checked_by_its_text_only(url: str):
    assert url_problem(url) is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.com", "http://"),
        ("example.com", "http://"),
        ("http://u:p@example.com", "Authorization"),
        ("http:///x", "no host"),
        ("http://a b/", "percent-encode"),
        ("http://a/\n", "percent-encode"),
        ("http://a/" + "x" * 2048, "2048"),
        ("http://a:65536/", "65535"),
        ("http://a:99999", "65535"),
        ("http://a:0/", "65535"),
        ("https://a:8o80/x", "65535"),
        ("http://a:-1/", "65535"),
        ("http://a:80:80/", "65535"),
        ("http://a:" + "9" * 1000, "65535"),
        ("http://a:\u0661", "65535"),
        ("http://[::1]:65536/", "65535"),
        ("http://[::1]x/", "65535"),
    ],
)
def test_a_url_problem_has_advice(url: str, says: str):
    assert says in (url_problem(url) or "")


def test_an_instant_is_written_with_milliseconds():
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_767_225_600_999) == "2026-01-01T00:00:00.999Z"
    assert rfc3339(221_845_391_999_001) == "8999-12-31T23:59:59.001Z"


@pytest.mark.parametrize("execution_id", ["manual-7", "0" * 32, "é" * 32, ""])
def test_a_trace_id_is_valid_for_any_execution_id(execution_id: str):
    made = trace_id(execution_id)
    assert len(made) == 32
    assert int(made, 16) != 0


def test_kept_text_holds_whole_characters_up_to_its_bound():
    assert kept_text("😀".encode() * 2000) == "😀" * 1000
    assert kept_text(b"a\r\n\tb") == "a\r\n\tb"
    assert kept_text(b"\xed\xa0\x80") == "\ufffd" * 3
    assert kept_text("\u202egnp.exe\ufeff".encode()) == "\ufffdgnp.exe\ufffd"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("1" * 400, None),
        ("١٢", None),
        ("nan", None),
        ("inf", None),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thursday, 01-Jan-70 00:02:00 GMT", 20.0),
        ("Thu, 99 Foo 99999999 00:00:00 GMT", None),
        ("Thu, 01 Jan 1970 00:00:00 +9999999999", None),
    ],
)
def test_retry_after_never_raises(value: str | None, seconds: float | None):
    assert retry_after_seconds(value, now=100.0) == seconds
