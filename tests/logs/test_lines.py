"""Text is cut into whole, clean lines within the limit."""

from __future__ import annotations

import time

import pytest

from duetime.logs.lines import LEAST_BYTES_A_LINE, LONGEST_LINE_BYTES, Cutter, clean, in_words, size_of

PLENTY = 1 << 30


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (["a\nb\n"], ["a", "b"]),
        (["a\r\nb\r\n"], ["a", "b"]),
        (["a\r", "\nb\n"], ["a", "b"]),
        (["10 %\r20 %\r", "30 %\n"], ["10 %", "20 %", "30 %"]),
        (["\n\n"], ["", ""]),
        (["a", "b", "c\n", "d"], ["abc", "d"]),
        (["a\r"], ["a"]),
        ([""], []),
    ],
)
def test_every_common_line_end_is_recognised(pieces: list[str], lines: list[str]):
    cutter = Cutter(PLENTY)
    found = [line for piece in pieces for line in cutter.cut("stdout", piece)]
    assert found + [text for _, text in cutter.finish()] == lines


def test_streams_do_not_mix():
    cutter = Cutter(PLENTY)
    assert cutter.cut("stdout", "out") == []
    assert cutter.cut("stderr", "err\r") == []
    assert cutter.cut("stdout", "put\n") == ["output"]
    assert cutter.cut("stderr", "or\n") == ["err", "or"]


def test_a_line_without_an_end_is_cut_when_it_is_too_long():
    cutter = Cutter(PLENTY)
    found: list[str] = []
    for _ in range(100):
        found += cutter.cut("stdout", "é" * 1000)
    assert all(size_of(line) == LONGEST_LINE_BYTES for line in found)
    rest = [text for _, text in cutter.finish()]
    assert "".join(found + rest) == "é" * 100_000
    assert len(rest) == 1


@pytest.mark.parametrize("sign", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_no_character_is_cut_in_two(sign: str, shift: int):
    text = "a" * shift + sign * LONGEST_LINE_BYTES
    lines = Cutter(PLENTY).cut("stdout", f"{text}\n")
    assert "".join(lines) == text
    assert all(LONGEST_LINE_BYTES - 3 <= size_of(line) <= LONGEST_LINE_BYTES for line in lines[:-1])


def test_kept_and_omitted_bytes_add_up_to_the_input():
    cutter = Cutter(10_000)
    text = "".join(f"line {number:04} of many\n" for number in range(1000))
    kept: list[str] = []
    for start in range(0, len(text), 777):
        kept += cutter.cut("stdout", text[start : start + 777])
    ((stream, sentence),) = cutter.finish()
    size = sum(len(line) + 1 for line in kept)
    assert 9_000 < size <= 10_000
    assert (stream, sentence) == ("log", f"the log is full at 9.8 KiB: {len(text) - size:,} bytes more were left out")


def test_a_full_log_keeps_no_later_line_even_if_that_would_fit():
    cutter = Cutter(100)
    assert cutter.cut("stdout", f"{'x' * 60}\n{'y' * 60}\nz\n") == ["x" * 60]
    assert cutter.cut("stderr", "short\n") == []
    assert cutter.finish() == [("log", "the log is full at 100 bytes: 69 bytes more were left out")]


def test_an_unfinished_line_is_counted_when_the_log_is_full():
    cutter = Cutter(100)
    cutter.cut("stderr", "begun")
    assert cutter.cut("stdout", "x" * 99 + "\n") == ["x" * 99]
    assert cutter.finish() == [("log", "the log is full at 100 bytes: 5 bytes more were left out")]


def test_empty_lines_count_towards_the_limit():
    cutter = Cutter(100 * LEAST_BYTES_A_LINE)
    assert len(cutter.cut("stdout", "\n" * 1000)) == 100
    assert cutter.finish()[-1][1].endswith("900 bytes more were left out")


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("plain", "plain"),
        ("a\tb", "a\tb"),
        ("a\x00b\x08c\x0bd\x1fe\x7ff", "abcdef"),
        ("\x1b[1;31mbold red\x1b[0m \x1b[2K\x1b[1Adone", "bold red done"),
        ("\x1bP odd", "P odd"),
        ("\ud83d\ude00 \ud83d \ude00", "😀 \ufffd \ufffd"),
        ("\udcff", "\ufffd"),
        ("non\xa0breaking \u200b \x85", "non\xa0breaking \u200b \x85"),
    ],
)
def test_lines_are_clean(dirty: str, expected: str):
    assert clean(dirty) == expected
    expected.encode()


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (1023, "1023 bytes"), (65536, "64.0 KiB"), (1 << 20, "1.0 MiB")]
)
def test_sizes_are_shown_in_words(size: int, words: str):
    assert in_words(size) == words


def test_omitted_lines_are_counted_without_work_for_each_line():
    chunk = ("x" * 15 + "\n") * 4096

    def cost(cutter: Cutter, chunks: int) -> float:
        began = time.process_time()
        for _ in range(chunks):
            cutter.cut("stdout", chunk)
        return time.process_time() - began

    kept, counting = Cutter(1 << 30), Cutter(1 << 20)
    by_the_line = cost(kept, 100) / 100
    assert cost(counting, 1600) / 1600 < by_the_line / 5  # a hundredth here
    assert (kept.left_out_bytes, counting.left_out_bytes) == (0, 1600 * 65536 - (1 << 20))
