"""Sort keys as unsigned words: rows compare as their words do, one after the other.

A fixed column is one word: missing values have one that no other value has. Other columns begin with a word that says
which values are missing. Text is cut into words of 7 bytes, so that it is looked at only as far as it decides; what
is left after `_TEXT_WORDS` of them is one word more, which numbers the texts that it is made for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...protocol.data import Columns, one_array
from ...protocol.schema import Column
from ...protocol.sorting import SortKey
from .scratch_pool import scratch

Words = npt.NDArray[np.uint64]
Rows = Any  # row numbers, or a slice with both ends
Get = Callable[[int, Rows], Words]

_TEXTS = ("str", "bytes")
_SIGN = np.uint64(1 << 63)
_ONE = np.uint64(1)
_ALL = np.uint64(2**64 - 1)
BLOCK_ROWS = 16384
_LEAST_BLOCK_ROWS = 256
_TEXT_BYTES = 7  # of a word; the eighth says how much is left
_TEXT_WORDS = 64  # a text of megabytes has hundreds of thousands, and each one costs as much as thousands of bytes


def block_rows(rows: int) -> int:
    """Rows of a block: temporaries stay in the cache, and are small beside the rows."""
    return min(max(rows // 8, _LEAST_BLOCK_ROWS), BLOCK_ROWS)


class KeyWords:
    """The words of some rows' keys.

    Parameters
    ----------
    data : Columns
    keys : sequence of SortKey

    Attributes
    ----------
    counts : tuple of int
        Words that each key has.
    """

    def __init__(self, data: Columns, keys: Sequence[SortKey]) -> None:
        columns = [data.schema[key.name] for key in keys]
        # Pieces of a column are joined in a copy, so once.
        arrays = [data.array(c.name) if c.fixed else one_array(data.array(c.name)) for c in columns]
        forms = [_form(*form) for form in zip(columns, arrays, keys, strict=True)]
        self._getters = [get for _, get in forms]
        self._keys = list(keys)
        self._texts = [array if c.kind in _TEXTS else None for c, array in zip(columns, arrays, strict=True)]
        self.counts = tuple(count for count, _ in forms)

    def places(self, counts: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """The words in the order in which they decide, as (key, word); ``counts`` may ask for more than there are."""
        return [(key, word) for key, count in enumerate(counts or self.counts) for word in range(count)]

    def is_rest(self, place: tuple[int, int]) -> bool:
        """Whether a word stands for the rest of a text. Such words compare only with those that are made with them."""
        key, word = place
        return self._texts[key] is not None and word > _TEXT_WORDS

    def rests(self, place: tuple[int, int], rows: Rows) -> list[bytes]:
        """The rests themselves, as Python has them."""
        array: Any = self._texts[place[0]]
        first = _TEXT_BYTES * _TEXT_WORDS
        some = array[rows] if isinstance(rows, slice) else array.take(pa.array(rows))
        return [(text or b"")[first:] for text in some.cast(pa.large_binary()).to_pylist()]

    def rest_words(self, place: tuple[int, int], rests: Sequence[bytes], among: Sequence[bytes]) -> Words:
        """Words of rests: twice the number of the first one in ``among`` (sorted, distinct) that is not less."""
        found = ((bisect_left(among, rest), rest) for rest in rests)
        words = np.fromiter((2 * i + (among[i : i + 1] == [rest]) for i, rest in found), np.uint64, len(rests))
        return _turned(words, self._keys[place[0]])

    def get(self, place: tuple[int, int], rows: Rows) -> Words:
        """One word of each of some rows, in new memory; made block by block, as it takes a few arrays of that size."""
        if self.is_rest(place):
            rests = self.rests(place, rows)
            return self.rest_words(place, rests, sorted(set(rests)))
        key, word = place
        first, count = (rows.start, rows.stop - rows.start) if isinstance(rows, slice) else (0, len(rows))
        step = block_rows(count)
        if count <= step:
            return self._getters[key](word, rows)
        words = scratch(count, np.dtype(np.uint64))
        for start in range(0, count, step):
            stop = min(start + step, count)
            block = slice(first + start, first + stop) if isinstance(rows, slice) else rows[start:stop]
            words[start:stop] = self._getters[key](word, block)
        return words


def _form(column: Column, array: Any, key: SortKey) -> tuple[int, Get]:
    """How many words a column has, and what gives them."""
    if column.kind == "complex":
        return _complex_form(array, key)
    if column.fixed:
        return 1, _fixed_getter(column.kind, array, key)
    return _arrow_form(column.kind, array, key)


def _fixed_getter(kind: str, array: npt.NDArray[Any], key: SortKey) -> Get:
    if kind == "float":
        return lambda word, rows: _float_words(array[rows], key)
    if kind in ("bool", "int"):
        return lambda word, rows: _turned(_int_words(array[rows]), key)
    # Codes of categories and ticks: what is missing is the least there is, and nothing else is.
    ticks = array.view(np.int64) if array.dtype.kind in "mM" else array
    return lambda word, rows: _with_least_missing(_int_words(ticks[rows]), key, kind)


def _int_words(values: npt.NDArray[Any]) -> Words:
    if values.dtype.kind in "bu":
        return values.astype(np.uint64)
    if values.dtype == np.int64:
        return values.view(np.uint64) ^ _SIGN
    words = values.astype(np.int64).view(np.uint64)
    words ^= _SIGN
    return words


def _float_bits(values: npt.NDArray[Any]) -> Words:
    words = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    negative = words >= _SIGN
    words ^= np.where(negative, _ALL, _SIGN)
    return words


def _float_words(values: npt.NDArray[Any], key: SortKey) -> Words:
    words = _turned(_float_bits(values), key)
    missing = np.isnan(values)
    if missing.any():
        words[missing] = 0 if key.nulls_first else _ALL
    return words


def _with_least_missing(words: Words, key: SortKey, kind: str) -> Words:
    if kind == "category":
        words ^= _SIGN
        words += _ONE  # code -1 becomes 0
    if key.ascending:
        return words if key.nulls_first else np.subtract(words, _ONE, out=words)  # the least becomes the greatest
    np.invert(words, out=words)
    return np.add(words, _ONE, out=words) if key.nulls_first else words


def _turned(words: Words, key: SortKey) -> Words:
    return words if key.ascending else _inverted(words)


def _inverted(words: Words) -> Words:
    inverted: Words = np.invert(words, out=words)
    return inverted


def _flags(missing: npt.NDArray[np.bool_], key: SortKey) -> Words:
    flags: Words = (missing != key.nulls_first).astype(np.uint64)
    return flags


def _complex_form(array: npt.NDArray[Any], key: SortKey) -> tuple[int, Get]:
    def get(word: int, rows: Rows) -> Words:
        values = array[rows]
        missing = np.isnan(values)
        if word == 0:
            return _flags(missing, key)
        words = _turned(_float_bits(values.real if word == 1 else values.imag), key)
        words[missing] = 0
        return words

    return 3, get


def _arrow_form(kind: str, array: Any, key: SortKey) -> tuple[int, Get]:
    if kind == "null":
        return 0, lambda word, rows: np.empty(0, np.uint64)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else np.zeros(len(array), np.bool_)
    if kind == "float":
        missing = missing | np.isnan(_items(array, array.type.to_pandas_dtype()))
    if kind in _TEXTS:
        count, values = _text_words(array)
    elif kind == "decimal":
        count, values = _decimal_words(array)
    else:
        count, values = 1, _value_words(kind, array)

    def get(word: int, rows: Rows) -> Words:
        null = missing[rows]
        if word == 0:
            return _flags(null, key)
        words = _turned(values(word - 1, rows), key)
        words[null] = 0
        return words

    return count + 1, get


def _items(array: Any, dtype: Any) -> npt.NDArray[Any]:
    """The values of an array of fixed width, without a copy; what stands where it is null is unspecified."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(len(array), dtype)
    return np.frombuffer(buffer, dtype, count=array.offset + len(array))[array.offset :]


def _value_words(kind: str, array: Any) -> Get:
    if kind == "bool":
        bits = array.fill_null(False).to_numpy(zero_copy_only=False)
        return lambda word, rows: _int_words(bits[rows])
    if kind in ("int", "float"):
        items = _items(array, array.type.to_pandas_dtype())
        turn = _float_bits if kind == "float" else _int_words
        return lambda word, rows: turn(items[rows])
    ticks = _items(array, np.int32 if array.type.bit_width == 32 else np.int64)
    return lambda word, rows: _int_words(ticks[rows])


def _decimal_words(array: Any) -> tuple[int, Get]:
    width = array.type.bit_width // 64
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return width, lambda word, rows: np.zeros(len(np.arange(len(array))[rows]), np.uint64)
    words = np.frombuffer(buffer, np.uint64)[array.offset * width : (array.offset + len(array)) * width]
    table = words.reshape(-1, width)

    def get(word: int, rows: Rows) -> Words:
        column = table[:, width - 1 - word][rows].copy()  # the first limb is the lowest
        return np.bitwise_xor(column, _SIGN, out=column) if word == 0 else column

    return width, get


def _text_words(array: Any) -> tuple[int, Get]:
    offsets = _text_offsets(array)
    longest = int(np.diff(offsets).max(initial=0))
    overlapping, room = _overlapping(array)

    def get(word: int, rows: Rows) -> Words:
        first = offsets[:-1][rows] + _TEXT_BYTES * word
        left = np.clip(offsets[1:][rows] - first, 0, _TEXT_BYTES + 1)
        behind = np.clip(first - room, 0, 8)  # near the end the word is read from before, and shifted
        words: Words = overlapping[np.clip(first, 0, room)].astype(np.uint64)
        kept = np.minimum(left, _TEXT_BYTES).astype(np.uint64)
        # numpy shifts by 64 give 0 only by way of two shifts.
        half = (behind * 4).astype(np.uint64)
        words <<= half
        words <<= half
        unkept = (np.uint64(8) - kept) * np.uint64(4)
        words >>= unkept
        words >>= unkept
        words <<= unkept
        words <<= unkept
        words |= left.astype(np.uint64)
        return words

    count = -(-longest // _TEXT_BYTES)
    return min(count, _TEXT_WORDS + 1), get  # the last one stands for the rest


def _text_offsets(array: Any) -> npt.NDArray[np.int64]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, np.int64, count=array.offset + len(array) + 1)[array.offset :]


def _overlapping(array: Any) -> tuple[npt.NDArray[Any], int]:
    """The 8 bytes that begin at each byte, the first one the highest; and the last byte at which there are 8."""
    buffer = array.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(0, np.uint8)
    if data.nbytes < 8:
        data = np.concatenate((data, np.zeros(8 - data.nbytes, np.uint8)))
    return np.ndarray((data.nbytes - 7,), np.dtype(">u8"), data, strides=(1,)), data.nbytes - 8
