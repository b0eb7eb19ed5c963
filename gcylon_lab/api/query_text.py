"""Conditions written as text, as pandas' ``query`` takes them: ``"x > 3 and s == 'a'"`` as an expression."""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Collection, Mapping
from typing import Any, Never

from ..backends.protocol.expressions import Expression, col
from ..backends.protocol.schema import instead_of
from ..errors import ArgumentError, ColumnMissing

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_CONNECTING = {"&": "and", "|": "or"}  # which bind less than comparisons
_VARIABLE, _QUOTED = "__gl_variable_", "__gl_column_"
_STRINGS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_QUOTES = re.compile(rf"{_STRINGS.pattern}|`([^`]*)`")
_METHODS = (
    "isna", "notna", "isnull", "notnull", "isin", "between", "fillna", "abs", "round", "clip", "astype",
)  # fmt: skip
_SAME = {"isnull": "isna", "notnull": "notna"}


def condition_of(text: Any, columns: Collection[Any], variables: Mapping[str, Any]) -> Expression:
    """The condition that a text says of a table's columns.

    Parameters
    ----------
    text : str
        Comparisons, ``and or not``, ``& | ~``, arithmetic, ``in [...]``, ``.str`` and ``.dt`` methods; names in
        backticks where they are no Python names, and ``@name`` for a variable.
    columns : collection of labels
    variables : mapping
        What ``@name`` stands for.

    Raises
    ------
    ArgumentError
        If it is no condition; it says where.
    ColumnMissing
        If it names what is no column.
    """
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError(f"Expected a condition as text, got {text!r}.", advice='Give for example "x > 3".')
    return expression_of(text, columns, variables)


def expression_of(text: str, columns: Collection[Any], variables: Mapping[str, Any]) -> Expression:
    """What a text says to compute of a table's columns; see `condition_of`."""
    found = _Reader(text.strip(), columns, variables).read()
    if not isinstance(found, Expression):
        raise ArgumentError(f"{text!r} is no condition on columns.", advice='Give for example "x > 3".')
    return found


class _Reader:
    def __init__(self, text: str, columns: Collection[Any], variables: Mapping[str, Any]) -> None:
        self._text = text
        self._columns = columns
        self._variables = variables
        self._quoted: list[str] = []

    def read(self) -> Any:
        try:
            tree = ast.parse(self._plain(), mode="eval")
        except (SyntaxError, tokenize.TokenError) as error:
            raise ArgumentError(
                f"{self._text!r} cannot be read: {getattr(error, 'msg', error)}.",
                advice="Write it as Python has it, with names that are no Python names in backticks.",
            ) from None
        return self._value(tree.body)

    def _plain(self) -> str:
        """Python's own text: backticks and ``@`` are replaced by names, ``&`` and ``|`` by words, as pandas does."""
        text = _QUOTES.sub(self._unquoted, self._text)
        if "`" in _STRINGS.sub("", text):
            raise ArgumentError(f"{self._text!r} has a backtick too many.", advice="Put names between two of them.")
        tokens = list(tokenize.generate_tokens(io.StringIO(text.strip()).readline))
        made = []
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            if token.string == "@" and after is not None and after.type == tokenize.NAME:
                made.append((tokenize.NAME, _VARIABLE))
            elif made and made[-1][1] == _VARIABLE:
                made[-1] = (tokenize.NAME, _VARIABLE + token.string)
            elif token.string in _CONNECTING:
                made.append((tokenize.NAME, _CONNECTING[token.string]))
            else:
                made.append((token.type, token.string))
        return tokenize.untokenize(made).strip()

    def _unquoted(self, found: re.Match[str]) -> str:
        if found[1] is None:  # a string
            return found[0]
        self._quoted.append(found[1])
        return f" {_QUOTED}{len(self._quoted) - 1} "

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BoolOp):
            values = [self._value(one) for one in node.values]
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            found = values[0]
            for one in values[1:]:
                found = join(found, one)
            return found
        if isinstance(node, ast.UnaryOp):
            return self._of_one(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self._value(one) for one in node.elts]
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        return self._refuse(node)

    def _of_one(self, node: ast.UnaryOp) -> Any:
        value = self._value(node.operand)
        if isinstance(node.op, ast.USub):
            return -value
        if isinstance(node.op, (ast.Not, ast.Invert)):
            return ~value if isinstance(value, Expression) else not value
        return value

    def _compared(self, node: ast.Compare) -> Any:
        sides = [self._value(one) for one in (node.left, *node.comparators)]
        found = None
        for sign, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if isinstance(sign, (ast.In, ast.NotIn)):
                if not isinstance(left, Expression) or isinstance(right, Expression):
                    self._refuse(node)
                one = left.isin(right)
                one = ~one if isinstance(sign, ast.NotIn) else one
            elif isinstance(right, list) and isinstance(sign, (ast.Eq, ast.NotEq)):  # as pandas has it: == a list is in
                one = left.isin(right) if isinstance(sign, ast.Eq) else ~left.isin(right)
            elif type(sign) in _OPERATORS:
                one = _OPERATORS[type(sign)](left, right)
            else:
                self._refuse(node)
            found = one if found is None else found & one
        return found

    def _called(self, node: ast.Call) -> Any:
        function = node.func
        if not isinstance(function, ast.Attribute):
            self._refuse(node)
        arguments = [self._value(one) for one in node.args]
        named = {one.arg: self._value(one.value) for one in node.keywords if one.arg}
        owner = function.value
        if function.attr.startswith("_"):
            self._refuse(node)
        if isinstance(owner, ast.Attribute) and owner.attr in ("str", "dt"):
            return getattr(getattr(self._column(owner.value), owner.attr), function.attr)(*arguments, **named)
        if function.attr not in _METHODS:
            self._refuse(node)
        return getattr(self._column(owner), _SAME.get(function.attr, function.attr))(*arguments, **named)

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = node.value
        if isinstance(owner, ast.Attribute) and owner.attr == "dt" and not node.attr.startswith("_"):
            return getattr(self._column(owner.value).dt, node.attr)
        return self._refuse(node)

    def _column(self, node: ast.expr) -> Expression:
        value = self._value(node)
        return value if isinstance(value, Expression) else self._refuse(node)

    def _name(self, name: str) -> Any:
        if name.startswith(_VARIABLE):
            name = name.removeprefix(_VARIABLE)
            if name not in self._variables:
                raise ArgumentError(
                    f"There is no variable {name!r} for {self._text!r}.",
                    advice=f"Set {name} before, or write its value.",
                )
            return self._variables[name]
        if name.startswith(_QUOTED):
            name = self._quoted[int(name.removeprefix(_QUOTED))]
        if name not in self._columns:
            advice = instead_of(name, self._columns)
            if name in self._variables:
                advice = f"{advice} If the variable is meant, write @{name}."
            raise ColumnMissing(f"There is no column {name!r}.", advice=advice, column=name)
        return col(name)

    def _refuse(self, node: ast.expr) -> Never:
        raise ArgumentError(
            f"{ast.unparse(node)!r} cannot be part of a condition as text.",
            advice="Give comparisons, and, or, not, in, arithmetic, .str and .dt methods; or an expression to filter.",
        )
