"""Kernels without a compiler: the function on blocks of whole columns where that answers alike, else row by row."""

from __future__ import annotations

import ast
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .source import MATH_AS_NUMPY, KernelSource, of_columns

_BLOCK_ROWS = 16384  # whose temporary arrays stay in a core's cache
_BLOCK_SCALARS = 4096
_MOST_SAMPLES = 512
_NEAR = (-2, -1, 0, 1, 2, 3)
_WIDE = {"b": np.dtype(np.bool_), "i": np.dtype(np.int64), "f": np.dtype(np.float64)}


class InterpretedLoop:
    """A kernel's loop over columns, by numpy.

    Attributes
    ----------
    dtype : numpy.dtype
        Of what it gives.
    how : str
        In words.
    """

    __slots__ = ("_columns", "_function", "dtype", "how")

    def __init__(self, source: KernelSource, arguments: Sequence[str]) -> None:
        text = of_columns(source)
        self._columns = text is not None
        self._function = _made(source, text)
        kinds = [np.dtype(name).kind for name in arguments]
        self.dtype = _of_columns(self._function, kinds) if self._columns else _of_samples(source, self._function, kinds)
        self.how = "by numpy on whole columns" if self._columns else "by Python row by row, of which numpy has no form"

    def __call__(self, values: Sequence[Any], nulls: Any, rows: int) -> Any:
        """One value a row; where ``nulls`` is set it is zero."""
        out = np.zeros(rows, self.dtype)
        size = _BLOCK_ROWS if self._columns else _BLOCK_SCALARS
        with np.errstate(all="ignore"):
            for start in range(0, rows, size):
                block = slice(start, min(rows, start + size))
                some = [value[block] if isinstance(value, np.ndarray) else value for value in values]
                if self._columns:
                    out[block] = self._function(*map(_widened, some))
                else:
                    self._by_row(out[block], nulls[block] if len(nulls) else None, some)
        if self._columns and len(nulls):
            out[nulls] = 0
        return out

    def _by_row(self, out: Any, nulls: Any, values: Sequence[Any]) -> None:
        there = slice(None) if nulls is None else np.flatnonzero(~nulls)
        rows = len(out[there])
        columns = [_scalars(v[there]) if isinstance(v, np.ndarray) else itertools.repeat(v, rows) for v in values]
        made = [self._function(*row) for row in zip(*columns, strict=True)]
        if not made:
            return
        found = _dtype_of(made)
        if np.promote_types(found, self.dtype) != self.dtype:
            raise ArgumentError(
                f"It gives {found} for some rows, where {self.dtype} was expected.",
                advice=f"Give gl.kernel(dtype={found.name!r}), or install numba, which sees what a function can give.",
            )
        out[there] = made


def _made(source: KernelSource, text: str | None) -> Callable[..., Any]:
    """The function: of columns where it has such a form, else of one row's scalars."""
    names: dict[str, Any] = {}
    exec(compile(source.module_text(), f"<kernel {source.name}>", "exec"), names)
    if text is None:
        for name, module, inner in source.imports:
            if module == "math":  # which raises errors where numpy and machine code give NaN or infinity
                names[name] = _math_as_numpy() if not inner else getattr(_math_as_numpy(), inner)
    else:
        names |= {
            "_gl_np": np, "_gl_where": _where, "_gl_and": lambda a, b: _where(a, b, a),
            "_gl_or": lambda a, b: _where(a, a, b), "_gl_not": np.logical_not, "_gl_whole": _whole, "_gl_abs": np.abs,
            "_gl_min": lambda a, b: _where(b < a, b, a), "_gl_max": lambda a, b: _where(b > a, b, a),
            "_gl_float": lambda a: np.asarray(a).astype(np.float64),
        }  # fmt: skip
        exec(compile(text, f"<kernel {source.name}>", "exec"), names)
    function: Callable[..., Any] = names[source.name]
    return function


def _math_as_numpy() -> Any:
    return SimpleNamespace(**(vars(math) | {name: getattr(np, name) for name in MATH_AS_NUMPY}))


def _where(condition: Any, there: Any, otherwise: Any) -> Any:
    return np.where(condition, there, otherwise)


def _whole(values: Any) -> Any:
    values = np.asarray(values) if isinstance(values, bool) else values
    return values.astype(np.int64) if getattr(values, "dtype", None) == np.bool_ else values


def _widened(values: Any) -> Any:
    return values.astype(_wide(values.dtype), copy=False) if isinstance(values, np.ndarray) else values


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _WIDE["i" if dtype.kind == "u" else dtype.kind]


def _scalars(values: Any) -> list[Any]:
    """Scalars that count as numpy's do, and bools that are Python's: they are whole numbers where one computes."""
    return values.tolist() if values.dtype == np.bool_ else list(_widened(values))


def _dtype_of(made: Any) -> np.dtype[Any]:
    """What the answers are: bools, whole numbers or floats.

    Raises
    ------
    ArgumentError
        If they are something else.
    """
    types = {type(one) for one in made} if isinstance(made, list) else {np.asarray(made).dtype.type}
    kinds = [np.dtype(one).kind if issubclass(one, (np.generic, bool, int, float)) else "O" for one in types]
    if not set(kinds) <= set("biuf"):
        names = ", ".join(sorted(one.__name__ for one in types))
        raise ArgumentError(
            f"It gives {names}, where a kernel gives a number or a bool.",
            advice="Let each way through it return one; where a value is missing it is not called.",
        )
    wide = [_WIDE["i" if kind == "u" else kind] for kind in kinds]
    return max(wide, key=lambda one: "bif".index(one.kind))


def _of_columns(function: Callable[..., Any], kinds: Sequence[str]) -> np.dtype[Any]:
    """By the rules of numpy, which look at dtypes alone."""
    with np.errstate(all="ignore"):
        return _dtype_of(np.asarray(function(*(np.ones(2, _WIDE["i" if kind == "u" else kind]) for kind in kinds))))


def _of_samples(source: KernelSource, function: Callable[..., Any], kinds: Sequence[str]) -> np.dtype[Any]:
    """By what it gives for numbers near zero and near those that stand in it, the same on all ranks."""
    answers, failed = [], None
    with np.errstate(all="ignore"):
        for row in _samples(source, kinds):
            try:
                answers.append(function(*row))
            except Exception as error:
                failed = error
    if not answers and failed is not None:
        raise failed
    return _dtype_of(answers)


def _samples(source: KernelSource, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    found = [node.value for node in ast.walk(source.tree()) if isinstance(node, ast.Constant)]
    found += [value for _, value in source.constants]
    numbers = [n for n in found if isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) < 2**53]
    near = sorted({*_NEAR, *(n + d for n in numbers for d in (-1, 0, 1))})
    of_kind: dict[str, list[Any]] = {
        "b": [False, True],
        "f": [np.float64(n) for n in [*near, 0.5]],
        "i": [np.int64(n) for n in sorted({int(n) for n in near})],
    }
    choices = [of_kind["i" if kind == "u" else kind] for kind in kinds]
    if math.prod(map(len, choices)) <= _MOST_SAMPLES:
        yield from itertools.product(*choices)
        return
    chance = random.Random(0)
    for _ in range(_MOST_SAMPLES):
        yield tuple(chance.choice(some) for some in choices)
