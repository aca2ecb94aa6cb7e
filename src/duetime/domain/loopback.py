"""Whether a host is this machine alone. Names other than localhost may resolve to anything, and are not trusted."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
