"""Decides whether a SQL job may connect to a server: the SSRF guard's rules and the operator's list. Does no I/O.

Every address of a name is checked at connect time, and the connection goes to a checked address.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from duetime.domain.sql_servers import SqlServers
from duetime.executors.guard import DEFAULT_PORTS, Address, BlockedTarget, check_address

_ADVICE = "The operator allows servers with SQL_ALLOWED_HOSTS."


def check_server(allowed: SqlServers, host: str, port: int, addresses: Iterable[str]) -> None:
    """Raises BlockedTarget unless the host is allowed by name, or each of its addresses is allowed."""
    if allowed.names(host, port):
        return
    for text in addresses:
        try:
            _check(allowed, ip_address(text), port)
        except ValueError:
            raise BlockedTarget(f"SQL jobs may not connect to {host}: {text} is no address. {_ADVICE}") from None
        except BlockedTarget as problem:
            raise BlockedTarget(f"SQL jobs may not connect to {host}: {problem} {_ADVICE}") from None


def check_literal(allowed: SqlServers, host: str, port: int) -> None:
    """Raises BlockedTarget if the host is an address that is not allowed. A name is checked when it is resolved."""
    try:
        ip_address(host)
    except ValueError:
        return
    check_server(allowed, host, port, (host,))


def _check(allowed: SqlServers, address: Address, port: int) -> None:
    networks = allowed.networks(port)
    if isinstance(address, IPv6Address) and address.scope_id is None:
        address = address.ipv4_mapped or address
    is_listed = any(address in network for network in networks if network.version == address.version)
    if not is_listed and not allowed.public:
        raise BlockedTarget(f"{address} port {port} is not on the operator's list.")
    check_address(address, networks)  # the address, and any IPv4 address embedded in it, must be public or listed
    if not is_listed and not any(low <= port <= high for low, high in DEFAULT_PORTS):
        raise BlockedTarget(f"Port {port} is not one that jobs may call.")
