"""What a notebook's function uses beside its arguments: modules go to the ranks with it, by their names.

Such a function runs on the ranks in the names of ``%px``, which are not those of the notebook. A module is the same
thing in both, so it can be imported there. Other values stay: the ranks would not see when they change.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..errors import RankError

_ADVICE = (
    "A function runs on the ranks with the names that %px cells gave there and the notebook's modules, "
    "not with its other names: define it in a %px cell, or give it as a default, as in lambda frame, limit=limit: ..."
)


def modules_named(function: Callable[..., Any] | None) -> dict[str, str]:
    """The modules that a function of the notebook uses by a global name: how it calls each, and its real name."""
    modules: dict[str, str] = {}
    # A function of a module is found there, with all that the module has; a decorator's is followed by the one inside.
    while isinstance(function, FunctionType) and (function.__module__ or "__").startswith("__"):
        found = ((name, function.__globals__.get(name)) for name in dict.fromkeys(_names(function.__code__)))
        modules |= {name: value.__name__ for name, value in found if isinstance(value, ModuleType)}
        function = getattr(function, "__wrapped__", None)
    return {name: module for name, module in modules.items() if name != "__builtins__"}


def import_missing(namespace: dict[str, Any], modules: Mapping[str, str]) -> None:
    """Import what has no name on this rank yet. What cannot be imported here stays unknown: using it is an error."""
    for name, module in modules.items():
        if name not in namespace:
            try:
                namespace[name] = importlib.import_module(module)
            except Exception:  # an import may run anything; its use will tell, as an error of the function
                continue


def advise_names(error: BaseException) -> None:
    """Say in the error of a function that a rank did not know a name of, which names it has there."""
    if isinstance(error, RankError) and error.numbers.get("type_name") == "NameError" and not error.advice:
        error.advice = _ADVICE


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
