"""The database that secret parameters of a SQL job may be sent to: the one that they were given for, and no other."""

from __future__ import annotations

from duetime.domain.payloads import SqlQuery
from duetime.domain.redirection import binding_problem

SHOWN = "postgresql://reports@db.example/shop"


def query(**fields: object) -> SqlQuery:
    return SqlQuery(connection="reports", statement="SELECT $1", parameters=["x"], **fields)  # type: ignore[arg-type]


def test_secret_parameters_are_sent_to_the_database_that_they_were_given_for() -> None:
    assert binding_problem(query(secret=("/parameters/0",), bound_to=SHOWN), SHOWN) is None


def test_secret_parameters_are_sent_to_no_other_database() -> None:
    problem = binding_problem(query(secret=("/parameters/0",), bound_to="postgresql://a@b/c"), SHOWN)
    assert problem is not None
    assert "were given for postgresql://a@b/c, and its connection 'reports' leads to " + SHOWN in problem


def test_secret_parameters_without_a_database_are_not_sent() -> None:
    problem = binding_problem(query(secret=("/parameters/0",)), SHOWN)
    assert problem is not None
    assert "were given for no database, and its connection 'reports' leads to " + SHOWN in problem


def test_parameters_without_a_secret_are_sent_to_any_database_of_the_connection() -> None:
    assert binding_problem(query(), SHOWN) is None
