"""Errors: one tree, told from rank to rank, with numbers and what to change."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from gcylon_lab import errors
from gcylon_lab.errors import (
    BudgetExceeded,
    ConfigError,
    GcylonError,
    RankError,
    from_message,
    to_message,
)


def every_class(base: type[GcylonError] = GcylonError) -> list[type[GcylonError]]:
    return [base, *(found for sub in base.__subclasses__() for found in every_class(sub))]


EVERY = every_class()


def test_the_drawing_in_the_docstring_is_the_tree():
    drawn = re.findall(r"^[ │├└─]*(?:├── |└── |    )([A-Z]\w+) *(?:\((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    assert {name for name, _ in drawn} == {kind.__name__ for kind in EVERY}
    for name, builtin in drawn:
        if builtin:
            mro = [kind.__name__ for kind in getattr(errors, name).__mro__]
            assert builtin in mro


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_an_error_travels_as_plain_values_and_by_pickle(kind):
    error = kind("It took 3 bytes of 2.", advice="Take fewer.", rank=5, needed_bytes=3)
    sent = json.loads(json.dumps(to_message(error)))
    for copy in (from_message(sent), pickle.loads(pickle.dumps(error))):
        assert type(copy) is kind
        assert str(copy) == "[rank 5] It took 3 bytes of 2. Take fewer."
        assert (copy.rank, copy.advice, copy.numbers) == (5, "Take fewer.", {"needed_bytes": 3})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("It is category (8 labels)", "It is category (8 labels). Leave it out."),
        ("It is.", "It is. Leave it out."),
        ("It is. (So it was.)", "It is. (So it was.) Leave it out."),
        ("Is it?", "Is it? Leave it out."),
    ],
)
def test_a_message_ends_before_its_advice_begins(message: str, said: str) -> None:
    assert str(ConfigError(message, advice="Leave it out.")) == said


def test_they_are_also_what_python_would_raise():
    assert issubclass(BudgetExceeded, MemoryError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    assert issubclass(errors.ColumnMissing, KeyError)


def test_a_missing_column_is_not_shown_in_quotes_as_key_errors_are():
    assert str(errors.ColumnMissing("There is no column 'x'.")) == "There is no column 'x'."


def test_where_it_began_stays_when_another_rank_tells_it():
    assert to_message(ConfigError("no", rank=1), rank=3)["rank"] == 1
    assert to_message(ConfigError("no"), rank=3)["rank"] == 3


def test_a_foreign_exception_becomes_a_rank_error_with_its_traceback():
    def fail() -> None:
        raise ZeroDivisionError("seven by zero")

    try:
        fail()
    except ZeroDivisionError as error:
        message = to_message(error, rank=2)
    copy = from_message(json.loads(json.dumps(message)))
    assert type(copy) is RankError
    assert str(copy) == "[rank 2] ZeroDivisionError: seven by zero"
    assert copy.numbers["type_name"] == "ZeroDivisionError"
    assert "in fail" in copy.numbers["traceback"]


def test_an_unknown_kind_is_still_an_error():
    told = {"kind": "FromTheFuture", "message": "new", "advice": "", "rank": 0, "numbers": {}}
    assert type(from_message(told)) is RankError
