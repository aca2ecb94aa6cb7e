from __future__ import annotations

import pytest

from duetime.executors.sql.types import read_array, write_array


@pytest.mark.parametrize(
    ("text", "name", "read"),
    [
        ("{}", "int4", []),
        ("{1,NULL,3}", "int4", [1, None, 3]),
        ("{{1,2},{3,4}}", "int8", [[1, 2], [3, 4]]),
        ("[0:1]={1,2}", "int4", [1, 2]),
        ('{"NULL",NULL,"a\\"\\\\b","",x y}', "text", ["NULL", None, 'a"\\b', "", "x y"]),
        ("{t,f}", "bool", [True, False]),
        ("{1.50,NaN}", "numeric", ["1.50", "NaN"]),
        ('{"\\\\xff00"}', "bytea", ["/wA="]),
        ("{infinity}", "timestamptz", ["infinity"]),
    ],
)
def test_the_text_of_an_array_is_read(text: str, name: str, read: object):
    assert read_array(text, name) == read


@pytest.mark.parametrize("text", ["", "1", "{", "}", "{1}{2}", "{1}x", '{"a', "x{1}", "{{{{{{{1}}}}}}}", "[0:1]="])
def test_text_that_is_not_an_array_stays_text(text: str):
    assert read_array(text, "int4") == text


def test_a_list_that_is_written_is_read_again():
    values = [["a", None, "NULL"], ['"', "\\", "{,} "]]
    assert read_array(write_array(values), "text") == values
