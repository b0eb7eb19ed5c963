"""What verbs are given that they cannot use: an error that names the argument and what is allowed, on all ranks."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from odd_arguments import FRAME, ODD, PLANNED
from worlds import World

import gcylon_lab as gl
from gcylon_lab.api.frames.names import Frames
from gcylon_lab.api.verbs.arguments import RULES, RULES_OF
from gcylon_lab.errors import ArgumentError, ConfigError, GcylonError

SEVERAL = [World("single", 1), World("threads", 2), World("threads", 3)]


def refused(cases: list[tuple[str, tuple[Any, ...], dict[str, Any], str]], prefix: str) -> list[str]:
    """The error of each case, which this rank was given like all others."""
    table = gl.from_local(FRAME)
    said = []
    for verb, args, named, _ in cases:
        try:
            said.append(f"no error, but {getattr(table, prefix + verb)(*args, **named)!r}")
        except (ArgumentError, ConfigError) as error:
            said.append(str(error))
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


@pytest.mark.parametrize("world", SEVERAL, ids=str)
def test_an_error_names_the_argument_and_what_is_allowed(world: World) -> None:
    for said in world.run(refused, ODD, ""):
        assert [words for (_, _, _, words), text in zip(ODD, said, strict=True) if words not in text] == [], said


@pytest.mark.parametrize("world", SEVERAL, ids=str)
def test_a_plan_refuses_the_same_in_the_same_words(world: World) -> None:
    for planned, ran in zip(world.run(refused, PLANNED, "plan_"), world.run(refused, PLANNED, ""), strict=True):
        # Which rank tells it is not the same where all know it.
        assert [text.removeprefix("[rank 0] ") for text in planned] == [text.removeprefix("[rank 0] ") for text in ran]


def refused_on_one(verb: str, odd: dict[str, Any], usual: dict[str, Any]) -> Any:
    table = gl.from_local(FRAME)
    try:
        made = getattr(table, verb)(**(odd if gl.current().rank == 1 else usual))
        made.count_rows()  # a row-wise verb waits for no rank: the others are told in what comes next
    except GcylonError as error:
        return type(error).__name__, error.rank, str(error), table.count_rows()


@pytest.mark.parametrize(
    ("verb", "odd", "usual", "words"),
    [
        ("shuffle", {"on": None}, {"on": "k"}, "Expected column labels for on, got None"),
        ("dropna", {"how": "most"}, {"how": "any"}, "how='most' is invalid"),
        ("isin", {"values": "abc"}, {"values": ["abc"]}, "a list of values for values, got 'abc'"),
        ("plan_sort_values", {"by": None}, {"by": "k"}, "Expected column labels for by, got None"),
    ],
)
def test_what_one_rank_was_given_is_told_to_all(verb: str, odd: dict, usual: dict, words: str) -> None:
    for kind, rank, text, rows in World("threads", 3).run(refused_on_one, verb, odd, usual):
        assert (kind, rank) == ("ArgumentError", 1) and words in text
        assert rows == 12  # all go on together


def isin_a_set(values: set[str]) -> Any:
    return gl.from_local(FRAME.assign(s=["a", "b", "c", "d"])).isin({"s": values}).to_pandas()["s"].tolist()


def test_values_of_a_set_are_in_one_order_on_all_ranks() -> None:
    class Reversed(set):  # sets of texts have another order in every process
        def __iter__(self) -> Any:
            return reversed(sorted(super().__iter__()))

    def on_ranks() -> Any:
        return isin_a_set((Reversed if gl.current().rank else set)({"a", "d"}))

    for found in World("threads", 2).run(on_ranks):
        assert found == [True, False, False, True] * 2


def test_values_of_an_expression_are_a_list_too() -> None:
    with pytest.raises(
        ArgumentError, match=r"Expected a list of values for values, got 'abc'. Pass a list, as \['abc'\]."
    ):
        gl.col("s").isin("abc")


def test_every_argument_of_every_verb_has_a_rule() -> None:
    """A new verb's arguments are checked, or stand here with what checks them."""
    elsewhere = {
        "right", "other", "others",  # tables: `check_table`
        ("join", "how"),  # with the columns there are, in `join_spec`
        ("astype", "dtype"), ("describe", "include"), ("describe", "exclude"),  # by the library
        ("groupby", "as_index"), ("resample", "rule"), ("select", "more"),
        ("query", "text"), ("query", "variables"),  # by `condition_of`
        *((f"write_{form}", option) for form in ("csv", "json", "ipc", "parquet")
          for option in ("compression", "delimiter", "partition_on", "storage_options")),
    }  # fmt: skip
    missing = set()
    for name, verb in inspect.getmembers(gl.Table, inspect.isfunction):
        if hasattr(Frames, name):
            continue  # these are made of verbs, which check what they are given
        known = name.removeprefix("plan_") if name != "merge" else "join"
        for argument in list(inspect.signature(verb).parameters)[1:] if not name.startswith("_") else ():
            if argument not in RULES and (known, argument) not in RULES_OF:
                missing |= {(known, argument)} if argument not in elsewhere else set()
    assert missing - elsewhere == set()
