"""Where engines differ: one table of what GPU engines refuse and CPU engines do, of which errors, the documentation and
tests take their text, and one of answers that differ.

What both refuse, such as a mean of texts, is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError, GcylonError, UnsupportedDtype
from .protocol.schema import Column


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that GPU engines refuse.

    Attributes
    ----------
    name : str
        By which errors carry it, in ``numbers["refusal"]``.
    dtypes : str
        Of which columns.
    verbs : str
        In what.
    why : str
        In words that complete "on GPU engines", as an error says it.
    instead : str
        What to do.
    """

    name: str
    dtypes: str
    verbs: str
    why: str
    instead: str


_CPU = "or use CPU engines (GCYLON_ENGINE=cpu)"

GPU_REFUSALS = (
    Refusal(
        "no cuDF type",
        "complex, period, float16, time, bytes, map, decimal256, struct without fields",
        "every verb, and what makes such a column",
        "cuDF has no type for it",
        f"Convert it before, {_CPU}.",
    ),
    Refusal(
        "list of labels",
        "category",
        "groupby: list",
        "lists of labels cannot be made",
        f"Convert the column before, as in astype({{'c': 'str'}}), {_CPU}.",
    ),
    Refusal(
        "same bits",
        "float, and mean, var and std of any dtype",
        "groupby: sum, mean, var, std with deterministic=True",
        "sums of floats do not have the same bits in every run",
        f"Leave deterministic=True out, sum integers or decimals, {_CPU}.",
    ),
    Refusal(
        "to a time zone",
        "strings and times",
        "astype to a dtype with a time zone",
        "cuDF makes no times of a zone",
        f"Convert the column before it is distributed, {_CPU}.",
    ),
)
# (of what, on GPU engines, on CPU engines)
DIFFERENCES = (
    (
        "sums, means, var and std of floats",
        "the last digits may differ from run to run",
        "the same bits for the same input and number of ranks; sums carry 64 bits",
    ),
    ("means of times", "rounded as float64 is: 256 ns today", "to the tick"),
    ("str.upper of letters that become several", "as Python has it: 'ß' is 'SS'", "as Arrow has it: 'ß' is 'ẞ'"),
    ("str.contains with regex=True, case=False", "upper and lower case of ASCII", "of Unicode"),
    ("order of groups and of rows after a shuffle", "not specified", "that of the first rows"),
)
_BY_NAME = {one.name: one for one in GPU_REFUSALS}


def refused_column(name: str, column: Column, what: str = "") -> UnsupportedDtype:
    """The error for a column that GPU engines refuse.

    Parameters
    ----------
    name : str
        Of one of `GPU_REFUSALS`.
    column : Column
    what : str, optional
        What was asked for.
    """
    refusal = _BY_NAME[name]
    asked = f"{what} of column" if what else "column"
    return UnsupportedDtype(
        f"{asked} {column.name!r} ({column.describe()}) is refused on GPU engines: {refusal.why}",
        advice=refusal.instead,
        column=column.name,
        refusal=name,
    )


def refused_argument(name: str, what: str) -> ArgumentError:
    """The error for an argument that GPU engines refuse; ``name`` is that of one of `GPU_REFUSALS`."""
    refusal = _BY_NAME[name]
    return ArgumentError(f"{what} is refused on GPU engines: {refusal.why}", advice=refusal.instead, refusal=name)


def is_refused_on_gpus(error: BaseException) -> bool:
    """Whether an error is one of these."""
    return isinstance(error, GcylonError) and error.numbers.get("refusal") in _BY_NAME


def as_text() -> str:
    """Both tables, as ``gcylon-lab doctor --engines`` and the documentation show them."""
    lines = ["GPU engines refuse what CPU engines do:"]
    for one in GPU_REFUSALS:
        lines += [f"- {one.verbs}; of {one.dtypes}: {one.why}.", f"  {one.instead}"]
    lines.append("Answers that differ:")
    lines += [f"- {what}: on GPU engines {gpu}; on CPU engines {cpu}." for what, gpu, cpu in DIFFERENCES]
    return "\n".join(lines)
