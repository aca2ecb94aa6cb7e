"""The weight of JSON: values count, characters in strings do not."""

from __future__ import annotations

import json

import pytest

from duetime.domain.weights import LIGHT_BYTES, MOST_WEIGHT, is_too_heavy, memory_of, weigh


@pytest.mark.parametrize(
    ("value", "weight"),
    [([], 4), ([1], 4), ([1, 2, 3], 6), ({"a": 1, "b": [2, 3]}, 10), ([[]] * 10, 4 + 10 * 4 + 9), ("text", 0)],
)
def test_a_list_or_an_object_weighs_five_values(value: object, weight: int):
    assert weigh(json.dumps(value).encode()) == weight


@pytest.mark.parametrize("item", [[], {}, {"a": 1}, {"abc": "a text", "b": "another"}, 1, "", "a, b"])
def test_the_values_of_a_body_are_limited(item: object):
    each = weigh(json.dumps(item).encode() if not isinstance(item, str) else b"") + 1
    most = MOST_WEIGHT // each
    assert not is_too_heavy(json.dumps([item] * (most - 4)).encode())
    assert is_too_heavy(json.dumps([item] * (most + 4)).encode())


@pytest.mark.parametrize("text", ["a,b,c\n", '{"a": 1, "b": [2]}', "\\,", '\\",[', "[[[[", '"', "\\"])
def test_characters_in_a_string_weigh_nothing(text: str):
    body = json.dumps({"body": text * (1_000_000 // len(text)), "more": [text, text]}).encode()
    assert not is_too_heavy(body)
    assert is_too_heavy(body[:-1] + b', "x": [' + b"[]," * 20_000 + b"[]]}")


def test_more_strings_than_there_may_be_values_are_too_many():
    assert is_too_heavy(b"{" + b'"a":"b",' * 120_000 + b'"a":"b"}')


def test_a_small_body_is_never_too_heavy():
    assert not is_too_heavy(b"[" * LIGHT_BYTES)


def test_memory_is_more_than_the_bytes():
    text = b"[" + b"[]," * 1000 + b"[]]"
    assert memory_of(text, weigh(text)) > 64 * 1000
