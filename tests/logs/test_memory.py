"""Pages from memory: only if no line can be missing, and without duplicates."""

from __future__ import annotations

from duetime.logs.memory import follows_on, joined
from duetime.ports.logs import Line
from samples import NOW

FIRST = 1 << 32


def line(number: int) -> Line:
    return Line(number, NOW, "stdout", str(number))


def test_a_page_is_read_from_memory_only_if_no_line_can_be_missing():
    assert follows_on(line(FIRST + 8), FIRST + 7)
    assert follows_on(line(FIRST + 1), 0)
    assert not follows_on(line(FIRST + 8), FIRST + 6)
    assert not follows_on(line(FIRST + 2), 0)
    assert not follows_on(line(2 * FIRST + 1), 0)


def test_a_line_that_is_stored_and_in_memory_is_in_a_page_once():
    kept, held = [line(FIRST + 1), line(FIRST + 2)], [line(FIRST + 2), line(FIRST + 3)]
    assert joined(kept, held, 10) == [line(FIRST + 1), line(FIRST + 2), line(FIRST + 3)]
    assert joined(kept, held, 2) == kept
    assert joined([], held, 10) == held
