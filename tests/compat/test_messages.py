"""Clients and workers of a released version work with the present server, and it with them: by recorded messages."""

from __future__ import annotations

import re

import msgspec
import pytest

from compat.frozen import VERSIONS, Exchange, exchanges_of
from compat.messages import KINDS, is_stream, kind_of, missing, request_of
from duetime.client import operations
from duetime.client.models import Event
from duetime.client.sse import Frames

RECORDED = [(version, one) for version in VERSIONS for one in exchanges_of(version)]


def recorded(operation: str) -> list[Exchange]:
    return [one for _, one in RECORDED if one.operation == operation]


OPERATIONS = sorted({one.operation for _, one in RECORDED if one.status < 400} - {"follow_events"})


def test_there_is_a_recording():
    assert VERSIONS
    assert KINDS.keys() == {*OPERATIONS}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_recorded_request_is_still_accepted_whole(operation: str):
    for one in recorded(operation):
        read = kind_of(one).request
        sent = request_of(one)
        if read is not None and sent is not None:
            assert not missing(sent, read(sent)), one


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_recorded_response_is_still_read_whole_by_the_client(operation: str):
    for one in recorded(operation):
        if one.response is not None and not is_stream(one):
            read = msgspec.json.decode(msgspec.json.encode(one.response), type=kind_of(one).client)
            lost = missing(one.response, read)
            if operation == "put_job_by_key" and one.status == 200:  # a job without the fields of a create
                lost = [line for line in lost if not line.endswith("is missing")]
            assert not lost, one


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_field_of_a_recorded_response_is_still_sent_by_the_server(operation: str):
    for one in recorded(operation):
        if one.response is not None and not is_stream(one):
            sent = msgspec.json.decode(msgspec.json.encode(one.response), type=kind_of(one).server)
            assert not missing(one.response, sent), one


def test_each_recorded_refusal_is_still_read():
    codes = set()
    for _, one in RECORDED:
        if one.status >= 400:
            kind, body = kind_of(one), msgspec.json.encode(one.response)
            for side in (kind.server, kind.client):
                assert not missing(one.response, msgspec.json.decode(body, type=side)), one
            codes.add(one.response["error"])
    assert len(codes) >= 10


def test_each_recorded_frame_of_a_stream_is_still_read():
    events = {}
    for one in recorded("follow_events"):
        for text in one.response:
            (frame,) = Frames().feed(text.encode())
            event = operations._event(frame)
            assert isinstance(event, Event)
            assert event.kind == re.findall(r"^event: (.*)$", text, re.MULTILINE)[0]
            events[event.kind] = event
    assert {"job.created", "job.paused", "execution.completed", "execution.failed"} <= events.keys()
    for one in recorded("get_execution_logs"):
        if is_stream(one):
            assert [frame.kind for text in one.response for frame in Frames().feed(text.encode())]
