"""The source of a kernel in one canonical form: of a function, or of a line of text. It travels, and is what is cached.

A text is parsed, never evaluated: only arithmetic, comparisons, conditions and a few functions may stand in it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ...errors import ArgumentError

# What a text may call, and how many values each takes; -1 for two or more.
TEXT_FUNCTIONS = {
    "abs": 1, "sqrt": 1, "exp": 1, "log": 1, "log2": 1, "log10": 1, "sin": 1, "cos": 1, "tan": 1, "floor": 1, "ceil": 1,
    "isnan": 1, "where": 3, "min": -1, "max": -1,
}  # fmt: skip
_PAIRWISE = {"min": "minimum", "max": "maximum"}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_NOT_IN_FUNCTIONS = (
    ast.Import, ast.ImportFrom, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal,
)  # fmt: skip
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_MOST_LETTERS = 4000
_parsing = threading.RLock()
_BUILTINS = ("abs", "bool", "float", "int", "len", "max", "min", "pow", "range", "round")
# Of `math`, what numpy answers alike.
MATH_AS_NUMPY = (
    "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot",
    "isnan", "isinf", "isfinite", "fabs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel's source.

    Attributes
    ----------
    name : str
        The function's name.
    parameters : tuple of str
    text : str
        The function in Python, without decorators, annotations and its docstring.
    constants : tuple of (str, value)
        Numbers that it uses by a name of its surroundings, as they were when it was made.
    imports : tuple of (str, str, str)
        What it calls a module, or something in a module; the module; what is in it, "" for the module itself.
    shown : str
        What a person wrote, where that was a text.
    """

    name: str
    parameters: tuple[str, ...]
    text: str
    constants: tuple[tuple[str, Any], ...] = ()
    imports: tuple[tuple[str, str, str], ...] = ()
    shown: str = ""

    def module_text(self) -> str:
        """The source with all that it uses, as a module."""
        lines = [f"import {module} as {name}" if not inner else f"from {module} import {inner} as {name}"
                 for name, module, inner in self.imports]  # fmt: skip
        lines += [f"{name} = {value!r}" for name, value in self.constants]
        return "\n".join([*lines, "", self.text, ""])

    def tree(self) -> ast.FunctionDef:
        """The function, parsed."""
        made = _parse(self.text).body[0]
        assert isinstance(made, ast.FunctionDef)
        return made


def _parse(text: str, mode: str = "exec") -> Any:
    """Parse Python, one thread at a time: Python 3.11 counts the depth of a tree for all threads in one place, and
    raises a SystemError where two parse at once."""
    with _parsing:
        return ast.parse(text, mode=mode)


def _refused(what: str, advice: str) -> ArgumentError:
    return ArgumentError(f"{what} cannot be a kernel.", advice=advice)


# ---- of a function


def of_function(function: Callable[..., Any]) -> KernelSource:
    """The source of a function.

    Raises
    ------
    ArgumentError
        If it has none that can be read, takes other than plain arguments, or uses what does not travel.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        what = "A lambda" if isinstance(function, FunctionType) else f"A {type(function).__name__}"
        raise _refused(what, "Give a function made by def, or a text, as gl.kernel('a * (1 - b)').")
    name = function.__name__
    try:
        tree = _parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise _refused(
            f"{name}, whose source cannot be read,",
            "Define it in a file or a cell of a notebook, or give a text, as gl.kernel('a * (1 - b)').",
        ) from None
    if not isinstance(tree, ast.FunctionDef):
        raise _refused(name, "Give a function made by def.")
    _check_parameters(name, tree.args)
    tree.decorator_list, tree.returns = [], None
    for argument in tree.args.args:
        argument.annotation = None
    if len(tree.body) > 1 and ast.get_docstring(tree) is not None:
        del tree.body[0]
    for node in ast.walk(tree):
        if isinstance(node, _NOT_IN_FUNCTIONS):
            raise _refused(f"{name}, in which {ast.unparse(node)!r} stands,", "Give it one number to return, no more.")
    constants, imports = _surroundings(function, tree)
    tree = _Conditions({name for name, module, inner in imports if (module, inner) == ("numpy", "")}).visit(tree)
    return KernelSource(
        name, tuple(one.arg for one in tree.args.args), ast.unparse(ast.fix_missing_locations(tree)), constants, imports
    )


class _Conditions(ast.NodeTransformer):
    """``np.where`` of three scalars as what it is: of these numpy and numba make an array."""

    def __init__(self, numpys: set[str]) -> None:
        self._numpys = numpys

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="where"), args=[test, there, otherwise]):
                return ast.IfExp(test, there, otherwise) if name in self._numpys and not node.keywords else node
        return node


def _check_parameters(name: str, given: ast.arguments) -> None:
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults)
    if not plain or not given.args:
        raise _refused(
            f"{name}({ast.unparse(given)})", "Give it one parameter or more, without defaults and stars: its columns."
        )


def _surroundings(function: FunctionType, tree: ast.FunctionDef) -> tuple[Any, Any]:
    """The constants and the modules that a function uses by names that are not its own."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {one.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for one in node.args}
    own |= {node.id for node in names if not isinstance(node.ctx, ast.Load)} | {tree.name}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    constants, imports = [], []
    for name in dict.fromkeys(node.id for node in names):
        if name in own or (name in _BUILTINS and known.get(name, getattr(builtins, name)) is getattr(builtins, name)):
            continue
        value = known.get(name)
        if isinstance(value, ModuleType):
            imports.append((name, value.__name__, ""))
        elif isinstance(value, (bool, int, float)) or isinstance(value, np.generic) and value.dtype.kind in "biuf":
            constants.append((name, value.item() if isinstance(value, np.generic) else value))
        elif home := _home(value):
            imports.append((name, home, str(getattr(value, "__name__", ""))))
        else:
            what = f"which is a {type(value).__name__}" if name in known else "which is not known here"
            raise _refused(
                f"{tree.name}, which uses {name!r}, {what},",
                "It may use numbers, and modules such as math and numpy: give other columns and values as arguments.",
            )
    return tuple(sorted(_spelled(constants))), tuple(sorted(imports))


def _spelled(constants: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    for name, value in constants:
        if isinstance(value, float) and not np.isfinite(value):
            raise _refused(f"A function that uses {name}={value!r}", "Write np.inf or np.nan in it.")
    return constants


def _home(value: Any) -> str:
    """The module of what stands in numpy or math under its own name; "" for all else."""
    if isinstance(value, np.ufunc):
        return "numpy" if getattr(np, value.__name__, None) is value else ""
    return "math" if getattr(value, "__module__", "") == "math" and callable(value) else ""


# ---- of a text


def of_text(text: str) -> KernelSource:
    """The source of a line of text, whose names are its parameters, in order.

    Raises
    ------
    ArgumentError
        If something else stands in it than arithmetic, comparisons, conditions and `TEXT_FUNCTIONS`.
    """
    given = text.strip()
    if len(given) > _MOST_LETTERS:
        raise _refused(f"A text of {len(given)} letters", f"At most {_MOST_LETTERS}; define a function instead.")
    try:
        tree = _parse(given, mode="eval").body
        parameters: dict[str, None] = {}
        made = ast.unparse(ast.fix_missing_locations(_scalar(tree, parameters)))
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise _refused(f"The text {given[:200]!r} ({error})", "Give an expression such as 'a * (1 - b)'.") from None
    if not parameters:
        raise _refused(f"The text {given!r}, in which no column stands,", "Name its columns, as in 'a * (1 - b)'.")
    uses = (("np", "numpy", ""),) if "np." in made else ()
    name = "kernel"
    head = f"def {name}({', '.join(parameters)}):"
    return KernelSource(name, tuple(parameters), f"{head}\n    return {made}", (), uses, given)


def _scalar(node: ast.expr, parameters: dict[str, None]) -> ast.expr:
    """An expression of a text, as it stands in a function of scalars.

    Raises
    ------
    ArgumentError
        If it is not allowed.
    """

    def inner(one: ast.expr) -> ast.expr:
        return _scalar(one, parameters)

    match node:
        case ast.Name(id=name) if name not in TEXT_FUNCTIONS and name != "np" and not name.startswith("_"):
            parameters[name] = None
            return node
        case ast.Constant(value=bool() | int() | float()):
            return node
        case ast.BinOp() if isinstance(node.op, (*_OPERATORS, *_BITWISE)):
            return ast.BinOp(inner(node.left), node.op, inner(node.right))
        case ast.UnaryOp() if isinstance(node.op, (ast.USub, ast.UAdd, ast.Not)):
            return ast.UnaryOp(node.op, inner(node.operand))
        case ast.Compare() if all(isinstance(op, _COMPARISONS) for op in node.ops):
            return ast.Compare(inner(node.left), node.ops, [inner(one) for one in node.comparators])
        case ast.BoolOp():
            return ast.BoolOp(node.op, [inner(one) for one in node.values])
        case ast.IfExp():
            # The order in which names stand is that of the parameters.
            body, test = inner(node.body), inner(node.test)
            return ast.IfExp(test, body, inner(node.orelse))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if _fits(name, node.args):
            return _called(name, [inner(one) for one in node.args])
    raise _refused(
        f"A text with {ast.unparse(node)!r}",
        "It may have names, numbers, + - * / // % ** & | ^, comparisons, and, or, not, if else, and "
        f"{', '.join(TEXT_FUNCTIONS)}; for all else define a function.",
    )


def _fits(name: str, arguments: list[ast.expr]) -> bool:
    wanted = TEXT_FUNCTIONS.get(name)
    return wanted is not None and (len(arguments) >= 2 if wanted < 0 else len(arguments) == wanted)


def _called(name: str, arguments: list[ast.expr]) -> ast.expr:
    if name == "where":
        condition, there, otherwise = arguments
        return ast.IfExp(condition, there, otherwise)
    if name in _PAIRWISE:
        made = arguments[0]
        for one in arguments[1:]:
            made = _call_of_numpy(_PAIRWISE[name], [made, one])
        return made
    if name == "abs":
        return ast.Call(ast.Name("abs"), arguments, [])
    return _call_of_numpy(name, arguments)


def _call_of_numpy(name: str, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("np"), name), arguments, [])


def without_numbers(text: str) -> str:
    """A text of a kernel in which no number shows."""

    class Hidden(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            return ast.Name("…")

    return ast.unparse(Hidden().visit(_parse(text, mode="eval")))


# ---- as a function of whole columns


def of_columns(source: KernelSource) -> str | None:
    """The function as one of whole arrays that answers alike for each row; None where it loops, or changes its names
    in branches, or calls what numpy has no such answer of."""
    tree = source.tree()
    modules = {name: module for name, module, inner in source.imports if not inner}
    plain = {name: (module, inner) for name, module, inner in source.imports if inner}
    steps = list(itertools.takewhile(lambda step: isinstance(step, ast.Assign), tree.body))
    try:
        given = _returned(tree.body[len(steps) :])
        body: list[ast.stmt] = []
        for step in steps:
            assert isinstance(step, ast.Assign)
            if not all(isinstance(one, ast.Name) for one in step.targets):
                return None
            body.append(ast.Assign(step.targets, _Arrays(modules, plain).visit(step.value)))
        tree.body = [*body, ast.Return(_Arrays(modules, plain).visit(given))]
    except _Branches:
        return None
    return ast.unparse(ast.fix_missing_locations(tree))


def _returned(steps: list[ast.stmt]) -> ast.expr:
    """What steps return that are conditions and returns alone, in one expression."""
    match steps:
        case [ast.Return(value=ast.expr() as value), *_]:
            return value
        case [ast.If(test=test, body=body, orelse=otherwise), *rest]:
            return ast.IfExp(test, _returned(body), _returned([*otherwise, *rest]))
    raise _Branches


class _Branches(Exception):
    """It has no form for whole columns."""


class _Arrays(ast.NodeTransformer):
    """An expression of scalars as one of arrays; a step is left out that could answer otherwise there."""

    def __init__(self, modules: dict[str, str], plain: dict[str, tuple[str, str]]) -> None:
        self._modules, self._plain = modules, plain

    def generic_visit(self, node: ast.AST) -> ast.AST:
        raise _Branches

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, (bool, int, float)):
            raise _Branches
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Pow) and not _is_not_negative(right):
            raise _Branches  # numpy refuses whole columns where one exponent is negative
        if isinstance(node.op, _OPERATORS):
            return ast.BinOp(_whole(left), node.op, _whole(right))
        if isinstance(node.op, _BITWISE):
            return ast.BinOp(left, node.op, right)
        raise _Branches

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _helper("_not", operand)
        if isinstance(node.op, (ast.USub, ast.UAdd)):
            return ast.UnaryOp(node.op, _whole(operand))
        raise _Branches

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if not all(isinstance(op, _COMPARISONS) for op in node.ops):
            raise _Branches
        values = [self.visit(one) for one in (node.left, *node.comparators)]
        made: ast.expr | None = None
        for left, op, right in zip(values, node.ops, values[1:], strict=False):
            one: ast.expr = ast.Compare(left, [op], [right])
            made = one if made is None else _helper("_and", made, one)
        assert made is not None
        return made

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "_and" if isinstance(node.op, ast.And) else "_or"
        first, *others = node.values
        made: ast.expr = self.visit(first)
        for one in others:
            made = _helper(name, made, self.visit(one))
        return made

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _helper("_where", self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(one) for one in node.args]
        if node.keywords:
            raise _Branches
        match node.func:
            case ast.Name(id="abs") if len(arguments) == 1:
                return _helper("_abs", _whole(arguments[0]))
            case ast.Name(id="float") if len(arguments) == 1:
                return _helper("_float", arguments[0])
            case ast.Name(id="min" | "max" as name) if len(arguments) > 1:
                made: ast.expr = arguments[0]
                for one in arguments[1:]:
                    made = _helper(f"_{name}", made, one)
                return made
            case ast.Name(id=name) if name in self._plain:
                module, inner = self._plain[name]
            case ast.Attribute(value=ast.Name(id=name), attr=inner) if name in self._modules:
                module = self._modules[name]
            case _:
                raise _Branches
        alike = module == "numpy" or inner in MATH_AS_NUMPY and module == "math"
        if not alike or not isinstance(getattr(np, inner, None), np.ufunc) or getattr(np, inner).nin != len(arguments):
            raise _Branches
        return ast.Call(ast.Attribute(ast.Name("_gl_np"), inner), arguments, [])


def _is_not_negative(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value >= 0


def _whole(node: ast.expr) -> ast.expr:
    """Bools are whole numbers where one computes with them."""
    return node if isinstance(node, ast.Constant) else _helper("_whole", node)


def _helper(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(f"_gl{name}"), list(arguments), [])
