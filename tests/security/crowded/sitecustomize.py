"""Loaded by a node of the tests through PYTHONPATH: it accepts 40 connections instead of thousands.

It never closes an idle one because of its age, so that the only reason to close one is that another takes its place.
"""

from __future__ import annotations

from duetime import serving
from duetime.api.http import protocol

serving.MOST_CONNECTIONS = 40
protocol.HEAD_SECONDS = protocol.BODY_SECONDS = 3600.0
protocol.BoundedProtocol.timeout_keep_alive_handler = lambda self: None
