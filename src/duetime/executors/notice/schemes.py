"""The services that an alert channel may use: the schemes of apprise's plugins that only send HTTP, and mail.

The other plugins open sockets of their own (mqtt, irc, xmpp, syslog, smpp), run programs or draw on the desktop of the
machine that the node runs on. A test compares this list with the installed apprise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from duetime.domain.channels import Kind, scheme_of
from duetime.executors.guard import DEFAULT_PORTS, Ports

MAIL = frozenset({"mailto", "mailtos"})
MAIL_PORTS: Ports = (*DEFAULT_PORTS, (25, 25), (465, 465), (587, 587))

WEB = frozenset(
    ""
    .split()
)  # fmt: skip
ALLOWED = WEB | MAIL


@cache
def has_apprise() -> bool:
    return find_spec("apprise") is not None


def refusal_of(url: str) -> str | None:
    """Returns why a channel can't have this URL of apprise, as a sentence; None if it can, as far as its scheme shows."""
    scheme = scheme_of(url)
    if scheme not in ALLOWED:
        return (
            f"{scheme}:// is not a service that alerts can be sent to here: only those that apprise reaches over HTTP, "
            "and mail (mailtos://); see docs/how-to/alert-channels.md"
        )
    if not has_apprise():
        return "this server has no apprise; its operator installs it with: pip install 'duetime[alerts]'"
    return None


def ports_of(url: str) -> Ports:
    return MAIL_PORTS if scheme_of(url) in MAIL else DEFAULT_PORTS


def channel_refusal(target_refusal: Callable[[str], str | None], kind: Kind, url: str) -> str | None:
    """Returns why no channel of this kind and URL may be added; None if it may. `target_refusal`: for webhooks."""
    return target_refusal(url) if kind is Kind.WEBHOOK else refusal_of(url)
