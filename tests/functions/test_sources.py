"""Translation of a node's responses for a worker in the same program."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain.errors import DuetimeError, NotFound, Overloaded, RateLimited
from duetime.domain.states import Trigger
from duetime.domain.work import Assignment, Joining, Leaving, Polled, Polling, Reporting
from duetime.functions.source import SourceAway, UnknownWorker
from duetime.sdk.embedded import EmbeddedSource

ASKED: list[tuple[str, Any]] = [
    ("join", Joining("w", ("f",), 1)),
    ("poll", Polling(1, 1)),
    ("report", Reporting(1, [])),
    ("leave", Leaving(1)),
]


class WorkerGateway:
    def __init__(self, error: DuetimeError) -> None:
        self._error = error

    async def _refuse(self, *_: Any) -> Any:
        raise self._error

    join = poll = report = leave = _refuse


@pytest.mark.parametrize(("word", "body"), ASKED)
@pytest.mark.parametrize("error", [Overloaded("the disk is full", 10), RateLimited("too many polls", 5)])
async def test_a_busy_node_is_retried_after_the_time_that_it_gives(word: str, body: Any, error: Overloaded):
    with pytest.raises(SourceAway, match=error.message) as raised:
        await getattr(EmbeddedSource(lambda: WorkerGateway(error)), word)(body)
    assert raised.value.retry_after_seconds == error.retry_after


@pytest.mark.parametrize(("word", "body"), ASKED[1:])
async def test_a_worker_that_the_node_does_not_know_joins_again(word: str, body: Any):
    with pytest.raises(UnknownWorker, match="join again"):
        await getattr(EmbeddedSource(lambda: WorkerGateway(NotFound("join again"))), word)(body)


async def test_large_arguments_reach_the_function_as_values():
    large = Assignment(
        "e", 1, 1, "j", "name", "f", msgspec.Raw(b"[[1],2]"), msgspec.Raw(b'{"a":null}'), 0, Trigger.MANUAL, 1
    )
    small = Assignment("e", 1, 1, "j", "name", "f", [1], {}, 0, Trigger.MANUAL, 1)

    class Given:
        async def poll(self, *_: Any) -> Polled:
            return Polled([large, small])

    polled = await EmbeddedSource(Given).poll(Polling(1, 2))  # type: ignore[arg-type]
    assert [(one.args, one.kwargs) for one in polled.assignments] == [([[1], 2], {"a": None}), ([1], {})]
