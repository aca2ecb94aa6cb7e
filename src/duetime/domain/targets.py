"""The operator's list of hosts that jobs may call. Pure: it checks names, never the addresses that they resolve to."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import msgspec

_NAME = re.compile(r"(\*\.)?[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_BENEATH = "*."


class AllowedDomains(msgspec.Struct, frozen=True):
    """`names` are hosts as URLs write them: names in lower case, addresses in their shortest form.

    `suffixes` begin with a dot: all hosts that end with one of them are allowed.
    """

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()

    def has(self, host: str) -> bool:
        return host in self.names or host.endswith(self.suffixes)


def parse_domains(parts: Iterable[str]) -> AllowedDomains:
    """Reads example.com (only that host), *.example.com (all hosts below it) and addresses. Raises ValueError."""
    names, suffixes = set(), []
    for part in filter(None, (part.strip().lower() for part in parts)):
        if address := _address(part):
            names.add(address)
        elif not _NAME.fullmatch(part):
            raise ValueError(
                "must be hosts such as example.com,*.example.com,203.0.113.7: no scheme, port or path, and a * only "
                "as the first part (international names as xn--…)"
            )
        elif part.startswith(_BENEATH):
            suffixes.append(part[1:])
        else:
            names.add(part)
    return AllowedDomains(frozenset(names), tuple(suffixes))


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None
