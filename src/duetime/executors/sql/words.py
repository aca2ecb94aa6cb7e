"""Finds the first word of a SQL statement after whitespace and comments, which nest in PostgreSQL."""

from __future__ import annotations

import re

_BLANKS = re.compile(r"(?:[\s;(]|--[^\n\r]*)*")
_COMMENT_END = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z]+")


def first_word(statement: str) -> str:
    """Returns the first word in capitals, or the first character if it begins no word; empty if there is none."""
    place = _end_of(_BLANKS, statement, 0)
    while statement.startswith("/*", place):
        place = _end_of(_BLANKS, statement, _past_comment(statement, place))
    word = _WORD.match(statement, place)
    return word[0].upper() if word else statement[place : place + 1]


def _past_comment(statement: str, place: int) -> int:
    depth = 0
    for sign in _COMMENT_END.finditer(statement, place):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return len(statement)


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place
