"""Checks whether a host is a loopback address. Names other than localhost may resolve to any address: they are none."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
