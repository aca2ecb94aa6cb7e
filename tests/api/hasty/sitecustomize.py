"""Loaded by a node of the tests through PYTHONPATH: shortens timeouts of ten or sixty seconds to two."""

from __future__ import annotations

from duetime.api.http import protocol

protocol.HEAD_SECONDS = protocol.BODY_SECONDS = 2.0
protocol.LOOK_SECONDS = 0.2
