"""Rows of parquet files of which a condition holds, chosen batch by batch before they are held as a table holds them.

What is left out is neither copied nor spelled out, and a question about texts that all rows refer to is asked of these
few alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...backends.arrow.casting import as_fixed, as_view
from ...backends.arrow.tables import exact_in_float, from_arrow
from ...backends.protocol.arrow_types import TypeClash, as_type, held_type
from ...backends.protocol.data import Columns
from ...backends.protocol.expressions import Expression
from ...backends.protocol.promotion import masked_name, value_type
from ...backends.protocol.schema import Column, Label, Schema
from ..row_filters import mask_of

# Steps that give bools whatever they are asked of, so that each of several that hold together may be asked alone.
_QUESTIONS = ("eq", "ne", "lt", "le", "gt", "ge", "between", "isin", "isna", "notna")
_NEARLY_ALL = 0.8  # of the rows
_FEW_TEXTS = 256  # that all rows of a row group refer to
_KNOWN_TEXTS = 1 << 14
_OF_TEXTS = ("str.contains", "str.startswith", "str.endswith")


class RowChoice:
    """A condition, and what is kept of the rows of which it holds.

    Parameters
    ----------
    condition : Expression
    columns : sequence of str, optional
        Those that are kept; all that are read by default.

    Attributes
    ----------
    looked_at : int
        Rows so far.
    """

    def __init__(self, condition: Expression, columns: Sequence[str] | None) -> None:
        self._questions = list(_asked_together(condition))
        self._names = [list(map(str, question.columns())) for question in self._questions]
        self._alone = [len(of) == 1 and _is_question(q) for of, q in zip(self._names, self._questions, strict=True)]
        self._like: tuple[Any, Schema] | None = None
        self._columns = columns
        self._answers: list[dict[str | bytes, bool]] = [{} for _ in self._questions]
        # So that each is looked at once for all batches.
        self._together: dict[tuple[int, ...], tuple[Expression, list[str]]] = {}
        self.looked_at = 0

    def kept(self, read: Sequence[str]) -> list[str]:
        """The columns that are kept of those that are read."""
        return list(read if self._columns is None else self._columns)

    def chosen(self, batch: Any, coded: Sequence[str], dtypes: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
        """The rows that are kept.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
        coded : sequence of str
            Columns that are dictionaries only as they are read.
        dtypes : mapping of str to str
            As of `from_arrow`.

        Returns
        -------
        pyarrow.RecordBatch, dict
            And the dtypes that columns have by their missing values, also where the rows that lack one are left out.

        Raises
        ------
        ArgumentError
            If the condition cannot be computed.
        """
        self.looked_at += batch.num_rows
        found = dict(_by_missing(batch, dtypes))
        known = {**dtypes, **found}
        mask = self._mask(batch, set(coded), known)
        some = batch if self._columns is None else batch.select(self._columns)
        return _rows_of(some, mask), found

    def _mask(self, batch: Any, coded: set[str], dtypes: Mapping[str, str]) -> npt.NDArray[np.bool_]:
        masks, others = [], []
        for place, (names, alone) in enumerate(zip(self._names, self._alone, strict=True)):
            array = batch.column(names[0]) if alone and names[0] in coded else None
            if array is None or array.null_count:
                others.append(place)
                continue
            masks.append(self._of_texts(place, names[0], array.dictionary, dtypes).take(array.indices.to_numpy()))
        if others:
            if (key := tuple(others)) not in self._together:
                asked = reduce(lambda a, b: a & b, [self._questions[place] for place in others])
                self._together[key] = asked, list(map(str, asked.columns()))
            asked, names = self._together[key]
            some = spelled_out(batch.select(names), coded)
            masks.append(mask_of(self._held(some, dtypes), asked))
        return reduce(np.logical_and, masks)

    def _held(self, some: Any, dtypes: Mapping[str, str]) -> Columns:
        """A batch's columns as they are held; where none lacks a value, of the dtypes that those of one like it had."""
        arrays = some.columns
        if any(array.null_count for array in arrays):
            return from_arrow(some, dtypes, share=True)
        if self._like is None or not some.schema.equals(self._like[0]):
            data = from_arrow(some, dtypes, share=True)
            pairs = zip(data.schema.columns, arrays, strict=True)
            self._like = (some.schema, data.schema) if all(_is_held_so(column, a.type) for column, a in pairs) else None
            return data
        schema, held = self._like[1], []
        for column, array in zip(schema.columns, arrays, strict=True):
            chunked = pa.chunked_array([array])
            shared = as_view(column, chunked) if column.fixed else chunked
            held.append(as_fixed(column, chunked) if shared is None else shared)
        return Columns(schema, some.num_rows, tuple(held))

    def _of_texts(self, place: int, name: Label, texts: Any, dtypes: Mapping[str, str]) -> npt.NDArray[np.bool_]:
        """Of which texts a question holds; where they are few, each is asked about once."""
        if len(texts) > _FEW_TEXTS:
            return self._asked(place, name, texts, dtypes)
        values, known = texts.to_pylist(), self._answers[place]
        if len(known) > _KNOWN_TEXTS:
            known.clear()
        if unknown := [value for value in values if value not in known]:
            answers = self._asked(place, name, pa.array(unknown, texts.type), dtypes)
            known.update(zip(unknown, answers.tolist(), strict=True))
        return np.array([known[value] for value in values], np.bool_)

    def _asked(self, place: int, name: Label, texts: Any, dtypes: Mapping[str, str]) -> npt.NDArray[np.bool_]:
        some = pa.table({str(name): texts.cast(held_type(texts.type))})
        return mask_of(from_arrow(some, dtypes), self._questions[place])


def _rows_of(batch: Any, mask: npt.NDArray[np.bool_]) -> Any:
    """The rows of a batch that a mask has: unless they are nearly all, Arrow takes places in half the time."""
    count = int(np.count_nonzero(mask))
    if count == len(mask):
        return batch
    plain = _without_views(batch)
    most = count > _NEARLY_ALL * len(mask)
    return plain.filter(pa.array(mask)) if most else plain.take(pa.array(np.flatnonzero(mask)))


def _is_held_so(column: Column, type_: Any) -> bool:
    """Whether a column holds the values of an Arrow type as they are."""
    return column.kind != "category" and held_type(type_) == type_ == value_type(column)


def _without_views(batch: Any) -> Any:
    """A batch with texts as they are held, where Arrow does not choose among them as they are read."""
    if not any("_view" in str(type_) for type_ in batch.schema.types):
        return batch
    arrays = list(batch.columns)
    for place, array in enumerate(arrays):
        with suppress(TypeClash):  # `from_arrow` tells it
            if "_view" in str(array.type) and not pa.types.is_dictionary(array.type):
                arrays[place] = as_type(array, held_type(array.type))
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _asked_together(condition: Expression) -> Iterator[Expression]:
    """What holds all together where a condition holds, as far as it is made so."""
    if condition.operation == "and_" and all(map(_is_question, condition.arguments)):
        for part in condition.arguments:
            yield from _asked_together(part)
    else:
        yield condition


def _is_question(given: Any) -> bool:
    if not isinstance(given, Expression):
        return False
    if given.operation in ("and_", "or_", "invert"):
        return all(map(_is_question, given.arguments))
    return given.operation in (*_QUESTIONS, *_OF_TEXTS)


def spelled_out(batch: Any, coded: Collection[str]) -> Any:
    """A batch with the texts in place of what refers to them."""
    names = batch.schema.names
    arrays = [decoded(a) if n in coded else a for n, a in zip(names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def decoded(array: Any) -> Any:
    """Texts in place of what refers to them, in the type in which they are held."""
    texts = array.dictionary.cast(held_type(array.type.value_type))
    if not array.null_count and (short := _of_short_texts(texts, array.indices)) is not None:
        return short
    # Whether the places are among them was looked at when they were read.
    return pa.DictionaryArray.from_arrays(array.indices, texts, safe=False).dictionary_decode()


def _of_short_texts(texts: Any, places: Any) -> Any:
    """Texts by their places, where all are of one short length, as flags are: numpy takes them as numbers, in a tenth
    of the time. None where they are others."""
    if not len(texts) or not pa.types.is_large_string(texts.type) or texts.null_count:
        return None
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    length = int(offsets[1] - offsets[0])
    if length not in (1, 2, 4, 8) or (np.diff(offsets) != length).any():
        return None
    numbers = np.frombuffer(texts.buffers()[2], f"u{length}", len(texts), int(offsets[0]))
    chosen, ends = numbers.take(places.to_numpy()), np.arange(0, length * len(places) + 1, length, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(places), pa.py_buffer(ends), pa.py_buffer(chosen))


def _by_missing(batch: Any, dtypes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Ints and bools of which some are missing, and the dtype that they have for it."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if not array.null_count or dtypes.get(name):
            continue
        if pa.types.is_boolean(array.type):
            yield name, "object"
        elif pa.types.is_integer(array.type):
            exact = exact_in_float(array)
            yield name, "float64" if exact else masked_name(np.dtype(array.type.to_pandas_dtype()))
