"""Alert channels: what users see of their URLs, and which they may have."""

from __future__ import annotations

import pytest

from duetime.domain.channels import LONGEST_URL, Kind, channel_url_problem, kind_of, scheme_of, shown_url

TOKEN = "T0K3N"


@pytest.mark.parametrize(
    ("kind", "url", "shown"),
    [
        (Kind.WEBHOOK, f"https://Hooks.example.com/services/{TOKEN}", "https://hooks.example.com/…"),
        (Kind.WEBHOOK, f"https://hooks.example.com:8443?key={TOKEN}", "https://hooks.example.com:8443/…"),
        (Kind.WEBHOOK, f"http://[2001:db8::1]:8080/{TOKEN}", "http://[2001:db8::1]:8080/…"),
        (Kind.APPRISE, f"https://discord.com/api/webhooks/1/{TOKEN}", "https://discord.com/…"),
        (Kind.APPRISE, f"https://ann:{TOKEN}@ntfy.example/x", "https://ntfy.example/…"),
        (Kind.APPRISE, f"slack://{TOKEN}/B/C/#alerts", "slack://…"),
        (Kind.APPRISE, f"tgram://{TOKEN}/1", "tgram://…"),
        (Kind.APPRISE, f"mailtos://ann:{TOKEN}@example.com", "mailtos://…"),
        (Kind.APPRISE, f"JSON://{TOKEN}", "json://…"),
    ],
)
def test_a_url_is_shown_without_its_secrets(kind: Kind, url: str, shown: str):
    assert shown_url(kind, url) == shown
    assert TOKEN not in shown_url(kind, url)


def test_the_kind_follows_from_the_scheme():
    kinds = {url: kind_of(url) for url in ("https://x.example", "HTTP://x.example", "slack://a/b/c", "x")}
    assert list(kinds.values()) == [Kind.WEBHOOK, Kind.WEBHOOK, Kind.APPRISE, Kind.APPRISE]


@pytest.mark.parametrize("url", ["", "slack", "//slack", "1slack://x", "slack:/x"])
def test_a_url_of_a_service_has_a_scheme(url: str):
    assert scheme_of(url) is None
    assert channel_url_problem(Kind.APPRISE, url)


@pytest.mark.parametrize("url", ["slack://a b", "slack://a\tb", "slack://a\nb", "slack://a\0b", "slack://a\x7fb"])
def test_a_url_has_no_blanks_or_control_characters(url: str):
    assert "has a blank or a control character" in (channel_url_problem(Kind.APPRISE, url) or "")


def test_a_url_is_not_too_long_and_a_webhook_is_a_url_of_the_web():
    assert channel_url_problem(Kind.APPRISE, f"json://{'x' * LONGEST_URL}") == "is longer than 2048 characters"
    assert channel_url_problem(Kind.WEBHOOK, "slack://a/b/c") == "The URL must start with http:// or https://."
    assert channel_url_problem(Kind.WEBHOOK, "https://x.example/hook") is None
    assert channel_url_problem(Kind.APPRISE, "slack://a/b/c") is None
