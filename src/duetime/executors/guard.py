"""The SSRF guard: which URLs and which addresses a job may call.

A job's author is not trusted with access to Duetime's internal network. So every URL is parsed here and nowhere else:
the executor connects to the parsed target, and there is no second parser that could disagree. Every address is checked
at connect time, after the name was resolved. Nothing in this file does I/O.

An address is allowed if it is globally reachable, or in a network that the operator allowed. The tables are our own:
`is_global` of the standard library changes between patch releases and does not look inside 6to4 or NAT64 addresses.

Allowed ports are 80, 443 and everything from 1024 up. Below 1024 are SSH, SMTP, LDAP, NetBIOS and the like, some of
which can be made to act on an HTTP request, and webhooks are not served there. Application servers use the ports above.
"""

from __future__ import annotations

import re
import socket
import unicodedata
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from duetime.domain.http_rules import MAX_URL_LENGTH, url_problem
from duetime.domain.targets import AllowedDomains

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
AllowedNetworks = tuple[Network, ...] | Literal[True]
Ports = tuple[tuple[int, int], ...]

DEFAULT_PORTS: Ports = ((80, 80), (443, 443), (1024, 65535))

_REFUSED_V4 = tuple(
    (IPv4Network(cidr), what)
    for cidr, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a carrier's shared network"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's host agent"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
    )
)
# Only 2000::/3 is global unicast. The refused networks below are inside it; loopback, fc00::/7, fe80::/10, fec0::/10
# and ff00::/8 are outside.
_GLOBAL_V6 = IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    (IPv6Network(cidr), what)
    for cidr, what in (
        ("2001::/23", "Teredo or reserved for protocols"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")

_LOCALHOST, _LOOPBACK = "localhost", IPv4Address("127.0.0.1")  # by RFC 6761, whatever a resolver returns
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# A URL without anything to escape or normalise. The groups are the origin, and the path as it is sent.
_PLAIN_URL = re.compile(
    r"(https?://[A-Za-z0-9.:-]+)(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?)?"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# IDNA 2003 (the standard library) and IDNA 2008 (browsers) map these characters to different names.
_IDNA_DEVIATIONS = re.compile("[ßς\u200c\u200d]")


class BlockedTarget(Exception):
    """A URL or an address that a job may not call. The message is a sentence for the job's owner."""


class BlockedAddress(BlockedTarget):
    """An address that the operator could allow."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"{address} {why}.")
        self.address = address


class Target(msgspec.Struct, frozen=True, gc=False):
    """A parsed URL. `address` is set if the host is an IP literal; a name is resolved when the request is made."""

    tls: bool
    host: str
    port: int
    path: str  # path and query, ready for the request line
    authority: str  # the value of the Host header
    address: Address | None


def check_address(address: Address, allow: AllowedNetworks = ()) -> None:
    """Raises `BlockedTarget` unless this address, and any IPv4 address embedded in it, may be called."""
    if allow is True:
        return
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise BlockedAddress(address, "is bound to an interface of this machine")
        address = address.ipv4_mapped or address
    if not any(address in network for network in allow if network.version == address.version):
        _check_global(address)
    for inner in _embedded(address):
        check_address(inner, allow)


def _check_global(address: Address) -> None:
    if isinstance(address, IPv4Address):
        refused = next((what for network, what in _REFUSED_V4 if address in network), None)
    elif address in _NAT64:
        return  # the embedded IPv4 address decides; it is checked next
    elif address not in _GLOBAL_V6:
        refused = "not globally reachable"
    else:
        refused = next((what for network, what in _REFUSED_V6 if address in network), None)
    if refused is not None:
        raise BlockedAddress(address, f"is not a public address ({refused})")


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """Returns the IPv4 addresses that a packet to this address may reach."""
    if isinstance(address, IPv4Address):
        return ()
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64 or address in _NAT64_LOCAL or address in _COMPATIBLE:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


def parse_target(url: str, ports: Ports = DEFAULT_PORTS) -> Target:
    """Parses a URL. Raises `BlockedTarget` if it is invalid. An IP literal is normalised but not yet checked."""
    problem = url_problem(url)
    if problem is not None:
        raise BlockedTarget(problem)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BlockedTarget("The host or port of the URL can't be read.") from None
    tls = parts.scheme == "https"
    if port is None:
        port = 443 if tls else 80
    if not any(low <= port <= high for low, high in ports):
        raise BlockedTarget(f"Port {port} is not one that jobs may call.")
    host, address = _parse_host(parts.hostname or "", bracketed="[" in parts.netloc)
    query = f"?{parts.query}" if parts.query else ""
    path = quote(f"{parts.path or '/'}{query}", safe="!#$%&'()*+,/:;=?@[]~-._|^`{}\"<>")
    authority = f"[{host}]" if ":" in host else host
    if port != (443 if tls else 80):
        authority += f":{port}"
    return Target(tls, host, port, path, authority, address)


def _parse_host(raw: str, *, bracketed: bool) -> tuple[str, Address | None]:
    if bracketed:
        try:
            address: Address = IPv6Address(raw)
        except ValueError:
            raise BlockedTarget("The URL holds brackets, but no IPv6 address in them.") from None
        return str(address), address
    host = _ascii_host(raw)
    if _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        address = _odd_ipv4(host.removesuffix("."))
        return str(address), address
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise BlockedTarget("The host of the URL is not a name: check for empty parts or a dot at the end.")
    return host, None


def _ascii_host(raw: str) -> str:
    if raw.isascii():
        return raw.lower()
    if _IDNA_DEVIATIONS.search(raw):
        raise BlockedTarget("The host of the URL is ambiguous as an international name; write it as xn--….")
    try:
        return unicodedata.normalize("NFKC", raw).encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise BlockedTarget("The host of the URL is not a valid international name.") from None


def _odd_ipv4(host: str) -> IPv4Address:
    """Reads 127.1, 2130706433, 0x7f000001 and 0177.0.0.1 as a resolver reads them."""
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        raise BlockedTarget("The host of the URL ends in a number but is no IPv4 address.") from None


class Guard:
    """The rules with an operator's settings. `allow`: networks besides the public ones, or True for all.

    `domains`: the hosts that may be called; None for any. The addresses of these hosts are still checked.
    """

    def __init__(
        self, allow: AllowedNetworks = (), ports: Ports = DEFAULT_PORTS, domains: AllowedDomains | None = None
    ) -> None:
        self._allow = allow
        self._ports = ports
        self._domains = domains
        # Bursts call the same origins, recurring jobs the same URLs. Parsing is the costliest part of the happy path.
        self._parsed = lru_cache(maxsize=4096)(self._parse)
        self._refused = lru_cache(maxsize=4096)(self._refuse)  # called for each created job, mostly of the same origins

    def check(self, address: Address) -> None:
        check_address(address, self._allow)

    def target(self, url: str) -> Target:
        """Returns the parsed URL. Raises `BlockedTarget` if its text alone shows that it may not be called."""
        plain = _PLAIN_URL.fullmatch(url)
        if plain is None or len(url) > MAX_URL_LENGTH:
            return self._parsed(url)
        origin, path = plain.groups()
        parts = self._parsed(origin)
        return Target(parts.tls, parts.host, parts.port, path, parts.authority, parts.address) if path else parts

    def refusal(self, url: str) -> str | None:
        """Returns why jobs may not call a URL, and which setting allows it; None if its text shows no reason.

        Used when a job is created. No name is resolved: its addresses are checked when the job runs.
        """
        plain = _PLAIN_URL.fullmatch(url)
        return self._refused(url if plain is None or len(url) > MAX_URL_LENGTH else plain[1])

    def _refuse(self, url: str) -> str | None:
        try:
            host = self.target(url).host
            if host == _LOCALHOST or host.endswith(f".{_LOCALHOST}"):
                self.check(_LOOPBACK)
        except BlockedAddress as problem:
            network = f"{problem.address}/{problem.address.max_prefixlen}"
            return f"{problem} The operator allows it with ALLOW_PRIVATE_TARGETS={network}."
        except BlockedTarget as problem:
            return str(problem)
        return None

    def _parse(self, url: str) -> Target:
        target = parse_target(url, self._ports)
        if self._domains is not None and not self._domains.has(target.host):
            raise BlockedTarget(f"{target.host} is not one of the hosts that jobs may call here (ALLOWED_TARGETS).")
        if target.address is not None:
            self.check(target.address)
        return target
