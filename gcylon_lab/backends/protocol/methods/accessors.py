"""Methods of texts and fields of times, as expressions have them by ``.str`` and ``.dt``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....errors import ArgumentError
from .signatures import in_own_words

# A text without these is found alike by itself and as a regular expression (but for the dot, which finds itself too).
_OF_REGULAR_EXPRESSIONS = frozenset("\\^$*+?{}[]|()")
_CONTAINS: dict[str, bool | None] = {"case": True, "na": None, "regex": False}

TEXT_METHODS = (
    "len", "lower", "upper", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "startswith", "endswith",
    "slice", "get", "find", "count", "repeat", "zfill", "pad", "ljust", "rjust", "center", "removeprefix",
    "removesuffix", "isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace", "isnumeric",
)  # fmt: skip
_TEXTS_WITH = (*TEXT_METHODS, "contains", "match", "fullmatch", "replace", "split", "extract", "cat")
TIME_FIELDS = (
    "year", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond", "weekday", "quarter", "dayofyear",
    "days_in_month", "is_month_start", "is_month_end", "is_quarter_start", "is_quarter_end", "is_year_start",
    "is_year_end", "is_leap_year", "days", "seconds",
)  # fmt: skip
_SAME_FIELDS = {
    "dayofweek": "weekday", "day_of_week": "weekday", "day_of_year": "dayofyear", "daysinmonth": "days_in_month",
}  # fmt: skip
_TIMES_WITH = (
    *TIME_FIELDS, "date", "floor", "ceil", "round", "normalize", "strftime", "month_name", "day_name", "total_seconds",
    "week", "tz_localize",
)  # fmt: skip
_TIMES_INSTEAD = {
    "time": "hour, minute and second",
    "to_period": "floor('MS') for the month as the time at which it began, floor('W'), floor('QS') and floor('YS')",
    "tz_convert": "astype('datetime64[ns, UTC]') for another time zone",
    "truncate": "floor('D')",
}
CALENDAR_UNITS = ("W", "MS", "QS", "YS")
CALENDAR_ENDS = {"ME": "MS", "QE": "QS", "YE": "YS"}  # what is named by its last day, as weeks are
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")  # as the last days of weeks: "W-WED"; of "W" Sunday
_SAME_UNITS = {"M": "MS", "Q": "QS", "Y": "YS", "1mo": "MS", "1q": "QS", "1y": "YS", "1w": "W", "d": "D"}


@in_own_words
class TextMethods:
    """Methods of text, reached by ``.str``."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def contains(self, pattern: str, *, case: bool = True, na: bool | None = None, regex: bool | None = None) -> Any:
        """Whether a text is in the value, or with ``regex=True`` whether a regular expression matches in it.

        Parameters
        ----------
        pattern : str
        case : bool, default True
            Whether upper and lower case differ. On GPU engines a regular expression may know only those of ASCII.
        na : bool, optional
            What holds of missing values; by default what pandas says of the column's dtype, which is no or missing.
        regex : bool, optional
            Must be given where it makes a difference, that is, where a sign of regular expressions is in the pattern.

        Raises
        ------
        ArgumentError
            If it is not given there, or another one is not what it can be.
        """
        if not isinstance(case, bool):
            raise ArgumentError(f"case={case!r} is invalid.", advice="Expected True or False.")
        if na is not None and not isinstance(na, bool):
            raise ArgumentError(f"na={na!r} is invalid.", advice="Expected True, False or None.")
        if regex is None and _OF_REGULAR_EXPRESSIONS & set(pattern):
            raise ArgumentError(
                f"contains({pattern!r}) may mean a plain string or a regular expression.",
                advice="Give regex=True, which is what pandas takes by default, or regex=False.",
            )
        given = {"case": case, "na": na, "regex": bool(regex)}
        other = {name: value for name, value in given.items() if value != _CONTAINS[name]}
        return self._of._made("str.contains", self._of, pattern, *([other] if other else []))

    def match(self, pattern: str, *, case: bool = True, na: bool | None = None) -> Any:
        """Whether a regular expression matches where the value begins; see `contains`."""
        return self.contains(_anchored(pattern), case=case, na=na, regex=True)

    def fullmatch(self, pattern: str, *, case: bool = True, na: bool | None = None) -> Any:
        """Whether a regular expression matches the whole value; see `contains`."""
        return self.contains(f"{_anchored(pattern)}\\Z", case=case, na=na, regex=True)

    def replace(self, old: str, new: str, *, regex: bool = False) -> Any:
        """The value with another text in the place of one, or of what a regular expression matches, wherever it is."""
        if not isinstance(old, str) or not isinstance(new, str) or not isinstance(regex, bool):
            raise ArgumentError(
                f"replace({old!r}, {new!r}, regex={regex!r}) is invalid.", advice="Give two strings, and regex=True."
            )
        if regex and "\\" in new:
            raise ArgumentError(
                f"replace({old!r}, {new!r}, regex=True) refers to groups.",
                advice="Take groups out by .str.extract(pattern), and put texts together by +.",
            )
        return self._of._made(
            "str.replace", self._of, _checked(old) if regex else old, new, *([{"regex": True}] * regex)
        )

    def split(self, separator: str) -> Split:
        """What is between separators, of which one piece is taken: ``col("s").str.split("-")[0]``."""
        if not isinstance(separator, str) or not separator:
            raise ArgumentError(f"split got {separator!r}.", advice="Give a separator, as in .str.split('-')[0].")
        return Split(self._of, separator)

    def extract(self, pattern: str, *, expand: bool = False) -> Any:
        """What the one group of a regular expression matches first; missing where it matches nowhere."""
        groups = re.compile(_checked(pattern)).groups
        if groups != 1 or expand is not False:
            raise ArgumentError(
                f"extract({pattern!r}, expand={expand!r}) has {groups} groups.",
                advice="Give one, in parentheses, for each new column, and leave expand out.",
            )
        return self._of._made("str.extract", self._of, pattern)

    def cat(self, other: Any, sep: str = "") -> Any:
        """The value, a separator, and another value; missing where one of the two is."""
        joined = self._of + sep if sep else self._of
        return joined + other

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self._of._made("str.slice", self._of, place.start, place.stop, place.step)
        return self._of._made("str.get", self._of, place)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in TEXT_METHODS:
            raise AttributeError(f"there is no .str.{name}; there are {', '.join(_TEXTS_WITH)}")

        def call(*arguments: Any, **named: Any) -> Any:
            return self._of._made(f"str.{name}", self._of, *arguments, *([named] if named else []))

        return call


def _checked(pattern: str) -> str:
    """A regular expression that another one is made of.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ArgumentError(f"{pattern!r}: {error}.", advice="Give a regular expression.") from None
    return pattern


def _anchored(pattern: str) -> str:
    """A regular expression that matches where texts begin; flags as ``(?i)`` stay before all else."""
    flags = re.match(r"(\(\?[aimsux]+\))*", _checked(pattern))
    at = flags.end() if flags else 0
    return f"{pattern[:at]}\\A(?:{pattern[at:]})"


class Split:
    """Pieces of strings, of which one is taken by its number; negative ones count from the end.

    Parameters
    ----------
    of : Expression
    separator : str
    """

    def __init__(self, of: Any, separator: str) -> None:
        self._of, self._separator = of, separator

    @property
    def str(self) -> Split:
        """As pandas writes it: ``.str.split("-").str[0]``."""
        return self

    def __getitem__(self, place: int) -> Any:
        return self.get(place)

    def get(self, place: int) -> Any:
        """One piece; missing where there are not so many."""
        if not isinstance(place, int) or isinstance(place, bool):
            raise ArgumentError(f"A piece of a split string is taken by its number, not by {place!r}.")
        return self._of._made("str.split", self._of, self._separator, place)

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __iter__(self) -> Any:
            raise TypeError("pieces of a split string are taken one by one: .str.split('-')[0]")


class TimeFields:
    """Fields of times, reached by ``.dt``."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def floor(self, unit: str) -> Any:
        """The time at which its day ("D"), hour ("h"), minute ("min") or the like began, by its own clock; also its
        week ("W", from Monday), month ("MS"), quarter ("QS") and year ("YS")."""
        return self._of._made("dt.floor", self._of, _SAME_UNITS.get(unit, unit))

    def ceil(self, unit: str) -> Any:
        """The time at which the next day ("D"), hour ("h"), minute ("min") or the like begins."""
        return self._of._made("dt.ceil", self._of, unit)

    def round(self, unit: str) -> Any:
        """The nearest time at which a day ("D"), hour ("h"), minute ("min") or the like begins."""
        return self._of._made("dt.round", self._of, unit)

    @property
    def date(self) -> Any:
        """Its day, as a date of Arrow; see also `floor`."""
        return self._of._made("dt.date", self._of)

    def normalize(self) -> Any:
        """The time at which its day began."""
        return self.floor("D")

    def tz_localize(self, tz: None) -> Any:
        """What clocks of its zone show, as a time without one: ``tz_localize(None)``."""
        if tz is not None:
            raise ArgumentError(
                f"tz_localize got {tz!r}.",
                advice="Give None, which leaves the zone out; put one in before the times are distributed.",
            )
        return self._of._made("dt.tz_localize", self._of)

    def strftime(self, form: str) -> Any:
        """The time as text, such as ``strftime("%Y-%m-%d")``."""
        if not isinstance(form, str):
            raise ArgumentError(f"strftime got {form!r}.", advice='Give a form, as in strftime("%Y-%m").')
        return self._of._made("dt.strftime", self._of, form)

    def month_name(self) -> Any:
        """The month's English name."""
        return self._of._made("dt.month_name", self._of)

    def day_name(self) -> Any:
        """The English name of the day of the week."""
        return self._of._made("dt.day_name", self._of)

    def total_seconds(self) -> Any:
        """How many seconds a duration is, as a float."""
        return self._of._made("dt.total_seconds", self._of)

    def isocalendar(self) -> IsoCalendar:
        """``isocalendar().week``, as pandas writes it; see `week`."""
        return IsoCalendar(self)

    @property
    def week(self) -> Any:
        """The number of its week, from Monday, in its year as ISO 8601 counts them."""
        return self._of._made("dt.week", self._of)

    def __getattr__(self, name: str) -> Any:
        name = _SAME_FIELDS.get(name, name)
        if name not in TIME_FIELDS:
            instead = f": use {_TIMES_INSTEAD[name]}" if name in _TIMES_INSTEAD else ""
            raise AttributeError(f"there is no .dt.{name}{instead}; there are {', '.join(_TIMES_WITH)}")
        return self._of._made(f"dt.{name}", self._of)


class IsoCalendar:
    """Weeks as ISO 8601 counts them; made by ``.dt.isocalendar()``.

    Parameters
    ----------
    fields : TimeFields
    """

    def __init__(self, fields: TimeFields) -> None:
        self._fields = fields

    @property
    def week(self) -> Any:
        """The number of the week in its year."""
        return self._fields.week

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no .dt.isocalendar().{name}: there is week, and strftime('%G-%V-%u')")
