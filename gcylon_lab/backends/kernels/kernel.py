"""`kernel`: a function of the scalars of one row, or a text of one, as a step of expressions over columns."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, overload

import numpy as np

from ...errors import ArgumentError
from ...profiling import span
from ..protocol.expressions import Expression, col
from ..protocol.scalars import shown
from .cache import key_of
from .running import Ran, run
from .source import KernelSource, of_function, of_text, without_numbers

Runner = Callable[[KernelSource, "np.dtype[Any] | None", Sequence[Any]], Ran]

_RUNNERS: dict[str, Runner] = {"pandas": run}


def run_by(library: str, runner: Runner) -> None:
    """Let a function run kernels on the series of a library."""
    _RUNNERS[library] = runner


class _Ran(threading.local):
    """How a kernel ran, by the dtypes of its columns; of this thread, as ranks may be threads."""

    def __init__(self) -> None:
        self.how: dict[tuple[str, ...], str] = {}


class ColumnKernel:
    """What to compute of the values of one row; made by `kernel`, and called with columns.

    Called with labels of columns, expressions and numbers it gives an `Expression`; with series of the rank's library,
    as in `gcylon_lab.Table.map_parts`, a series; with numbers alone a number.
    """

    def __init__(self, source: KernelSource, name: str, dtype: np.dtype[Any] | None) -> None:
        self.source = source
        self.name = name
        self.dtype = dtype
        self._ran = _Ran()
        own = not source.shown or name != source.shown
        self._labels = (name, name) if own else (f"kernel({without_numbers(name)!r})", f"kernel({name!r})")
        self.__name__ = name
        self.__doc__ = f"A kernel of {', '.join(source.parameters)}."
        parameters = [inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD) for one in source.parameters]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *columns: Any, **named: Any) -> Any:
        """Give it columns, each by its place or by the parameter's name."""
        try:
            given = list(self.__signature__.bind(*columns, **named).arguments.values())
        except TypeError as error:
            takes = ", ".join(self.source.parameters)
            raise ArgumentError(f"Kernel {self.name} takes {takes}, and was called otherwise: {error}.") from None
        if any(_library(one) in _RUNNERS for one in given):
            return self.run(given)
        for one in given:
            if not isinstance(one, (Expression, str, Real, np.bool_)):
                raise ArgumentError(
                    f"Kernel {self.name} was given {shown(one)}.",
                    advice="Give names of columns, expressions such as gl.col('x') * 2, and numbers.",
                )
        if not any(isinstance(one, (Expression, str)) for one in given):
            return self.run(given)
        return Expression("kernel", self, *(col(one) if isinstance(one, str) else one for one in given))

    def run(self, values: Sequence[Any]) -> Any:
        """Compute it of series, and of values that are the same for all rows."""
        library = next((name for name in map(_library, values) if name in _RUNNERS), "pandas")
        try:
            with span(self.label(literals=False), "kernel", tier="device") as timed:
                ran = _RUNNERS[library](self.source, self.dtype, values)
                timed.bytes = ran.nbytes
        except ArgumentError as error:
            raise ArgumentError(f"Kernel {self.name}: {error.message}", advice=error.advice) from None
        if ran.rows:
            self._ran.how.setdefault(ran.dtypes, ran.how)
        return ran.made

    def label(self, *, literals: bool) -> str:
        """How it stands in expressions and records: its name, or its text, whose numbers may be left out."""
        return self._labels[literals]

    def identity(self) -> str:
        """What differs where kernels of one name differ."""
        return f"{self.label(literals=False)} {key_of([self.source.module_text(), str(self.dtype)])[:12]}"

    def begin(self) -> None:
        """An operation begins, of which `how` will tell."""
        self._ran.how = {}

    def how(self) -> str:
        """Which code ran on which engine in this rank's last operation, and why, in words."""
        ways = list(dict.fromkeys(self._ran.how.values())) or ["not called: this rank has no rows"]
        label = self.label(literals=False)
        return f"{label if label.startswith('kernel(') else f'kernel {label}'}: {'; '.join(ways)}"

    def __repr__(self) -> str:
        return f"<gl.kernel {self.name}({', '.join(self.source.parameters)})>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ColumnKernel, (self.source, self.name, self.dtype))


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0] if hasattr(value, "dtype") and value.ndim else ""


def kernels_in(expression: Any) -> list[ColumnKernel]:
    """The kernels of an expression, each once, in order."""
    found: dict[int, ColumnKernel] = {}
    if isinstance(expression, Expression):
        for part in expression.arguments:
            for one in [part] if isinstance(part, ColumnKernel) else kernels_in(part):
                found[id(one)] = one
    return list(found.values())


@overload
def kernel(definition: Callable[..., Any] | str, /, *, dtype: Any = None, name: str | None = None) -> ColumnKernel:
    """Of a function or a text."""


@overload
def kernel(*, dtype: Any = None, name: str | None = None) -> Callable[[Callable[..., Any]], ColumnKernel]:
    """As a decorator."""


def kernel(definition: Any = None, /, *, dtype: Any = None, name: str | None = None) -> Any:
    """A kernel of one's own: what to compute of the values of one row, for use in `assign`, `filter` and `map_parts`.

    Parameters
    ----------
    definition : function or str
        A function of numbers that gives a number or a bool; it may branch and loop, and use numbers and modules of its
        surroundings, as they are when it is defined. Or a text such as ``"a * (1 - b)"``, whose names are its
        parameters in order; it may have arithmetic, comparisons, ``and``, ``or``, ``not``, ``if else``, and abs, sqrt,
        exp, log, log2, log10, sin, cos, tan, floor, ceil, isnan, where, min and max. It is parsed, never evaluated.
    dtype : dtype, optional
        Of the result, as numpy names it, to which it is converted as by ``astype``. By default bool, int64 or float64,
        whichever it gives, for all rows and on all ranks.
    name : str, optional
        What it is called in `explain`, records and profiles; the function's name, or the text.

    Returns
    -------
    ColumnKernel
        To be called with labels of columns, expressions and numbers, which gives an `Expression`. Used as a decorator,
        it stands in the place of the function.

    Raises
    ------
    ArgumentError
        If it is no function whose source can be read, it uses what cannot travel to the ranks, or something else
        stands in the text.

    Notes
    -----
    The function sees bools, whole numbers as int64, and other numbers as float64; datetimes and timedeltas as the
    int64 count of their unit, those with a time zone in UTC. Division by zero, overflow and roots of negative numbers
    are as numpy has them. Where one of a row's values is missing it is not called, and the result is missing; NaN in a
    column of numpy's dtypes is a value. Results that may be missing have a nullable dtype. Columns of uint64, text,
    categories, decimals and dates are refused.

    CPU engines compile it with numba (``pip install 'gcylon-lab[kernels]'``), once for the dtypes of its columns, and
    keep the code in the cache that ``gcylon-lab cache`` shows; without numba it is run by numpy. GPU engines compile it
    with numba-cuda. ``explain()`` says what ran, and why.

    Examples
    --------
    >>> import gcylon_lab as gl
    >>> net = gl.kernel("price * (1 - discount)")
    >>> net("p", "d")
    kernel('price * (1 - discount)')(col('p'), col('d'))
    >>> @gl.kernel(dtype="int8")
    ... def band(x):
    ...     if x < 10:
    ...         return 0
    ...     return 1 if x < 100 else 2
    >>> band(gl.col("p") * 2) > 0
    (band((col('p') * 2)) > 0)
    >>> band(50)
    1
    """
    wanted = None if dtype is None else _checked(dtype)

    def made(given: Any) -> ColumnKernel:
        if isinstance(given, ColumnKernel):
            raise ArgumentError(f"{given.name} is a kernel already.", advice="Call it with columns.")
        source = of_text(given) if isinstance(given, str) else of_function(given)
        return ColumnKernel(source, name or source.shown or source.name, wanted)

    return made if definition is None else made(definition)


def _checked(dtype: Any) -> np.dtype[Any]:
    try:
        wanted: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        wanted = np.dtype(object)
    if wanted.kind not in "biufMm" or wanted.itemsize > 8 or wanted in (np.dtype("M8"), np.dtype("m8")):
        raise ArgumentError(
            f"dtype={dtype!r} cannot be that of a kernel's result.",
            advice="Expected one of numpy for numbers, bools or times, for example 'float32' or 'datetime64[us]'.",
        )
    return wanted
