"""For a node of the tests, by way of PYTHONPATH: it waits two seconds where others wait ten or sixty."""

from __future__ import annotations

from duetime.api.http import protocol

protocol.HEAD_SECONDS = protocol.BODY_SECONDS = 2.0
protocol.LOOK_SECONDS = 0.2
