"""Which database servers SQL jobs may connect to: the operator's list, `SQL_ALLOWED_HOSTS`.

An entry is the word `public`, a host name, an address or a network, each with or without a port. A name is allowed as
it is written in a connection's URL, with all addresses it resolves to: the operator who lists a name trusts it. An
address or a network allows every connection whose addresses all lie in it, private or not. `public` allows what is
globally reachable. A server that no entry allows is refused.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

Network = IPv4Network | IPv6Network
PUBLIC = "public"
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\](?::([0-9]{1,5}))?")
_PORTED = re.compile(r"([^:]+):([0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_WANTED = "must be public, host names, addresses or networks, such as public,db.internal:5432,10.0.0.0/8"


class ServerEntry(msgspec.Struct, frozen=True):
    """One entry. It has either a name or a network. `port` None: any port."""

    name: str | None
    network: Network | None
    port: int | None


class SqlServers(msgspec.Struct, frozen=True):
    public: bool
    entries: tuple[ServerEntry, ...] = ()

    def names(self, host: str, port: int) -> bool:
        """Returns whether an entry names this host as the connection's URL writes it."""
        wanted = host.lower().removesuffix(".")
        return any(entry.name == wanted and entry.port in (None, port) for entry in self.entries)

    def networks(self, port: int) -> tuple[Network, ...]:
        """Returns the networks that are allowed on this port."""
        return tuple(
            entry.network for entry in self.entries if entry.network is not None and entry.port in (None, port)
        )


def parse_servers(text: str) -> SqlServers:
    """Reads the operator's list. Raises ValueError with the form of a valid entry."""
    parts = [part.strip().lower() for part in text.split(",") if part.strip()]
    return SqlServers(PUBLIC in parts, tuple(_entry(part) for part in parts if part != PUBLIC))


def _entry(part: str) -> ServerEntry:
    if match := _BRACKETED.fullmatch(part):
        network = _network(match[1])
        if network is None:
            raise ValueError(_WANTED)
        return ServerEntry(None, network, _port(match[2]))
    if network := _network(part):
        return ServerEntry(None, network, None)
    host, port = part, None
    if match := _PORTED.fullmatch(part):
        host, port = match[1], _port(match[2])
        if network := _network(host):
            return ServerEntry(None, network, port)
    host = host.removesuffix(".")
    if not _NAME.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise ValueError(_WANTED)
    return ServerEntry(host, None, port)


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not 1 <= int(text) <= 65_535:
        raise ValueError("a port must lie between 1 and 65535")
    return int(text)
