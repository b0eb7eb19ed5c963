"""What other libraries hold as Arrow: opened as a stream of record batches, without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...errors import ArgumentError, GcylonError, ReadError, UnsupportedDtype
from ..protocol.data import Columns
from .tables import from_arrow

_WITHOUT_NAMES = "Give its values a name, for example pa.table({'x': values}), or use from_columns({'x': values})."


def open_stream(source: Any) -> Any:
    """A reader of the record batches of whatever speaks Arrow's C interface.

    Parameters
    ----------
    source : object
        With ``__arrow_c_stream__``, ``__arrow_c_array__`` or, in host memory, ``__arrow_c_device_array__``.

    Returns
    -------
    pyarrow.RecordBatchReader

    Raises
    ------
    ArgumentError
        If it is none of these, has no columns with names, cannot be read any more, or is in the memory of a GPU.
    """
    try:
        if hasattr(source, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(source)
        if hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_device_array__"):
            batch = pa.record_batch(source)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except GcylonError:
        raise
    except Exception as error:
        raise _unopened(source, error) from error
    raise ArgumentError(
        f"Expected Arrow data for from_arrow, got a {type(source).__qualname__}.",
        advice="Give what has __arrow_c_stream__ or __arrow_c_array__, such as a Table of pyarrow, a DataFrame of "
        "polars or a relation of DuckDB; arrays by name are for from_columns.",
    )


def _unopened(source: Any, error: Exception) -> ArgumentError:
    name, reason = name_of(source), reason_of(error)
    if "struct" in reason:
        return ArgumentError(f"A {name} has no columns with names: {reason}.", advice=_WITHOUT_NAMES)
    if not hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__arrow_c_array__"):
        advice = "CPU engines read what is in host memory alone: bring it there before, for example with to_arrow()."
        return ArgumentError(f"The Arrow data of a {name} cannot be read here: {reason}.", advice=advice)
    return ArgumentError(
        f"The Arrow stream of a {name} cannot be opened: {reason}.",
        advice="A stream gives its rows once: make it anew, or give what can be read again, such as a Table.",
    )


def read_batches(reader: Any, name: str) -> Iterator[Any]:
    """The record batches of a stream that another library made; those without rows are left out.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
    name : str
        What an error calls it.

    Raises
    ------
    ReadError
        If the library raises, or gives what is no record batch of the schema; with the batch and the rows before it.
    """
    number = rows = 0
    while True:
        try:
            batch = reader.read_next_batch()
            if batch.num_rows:  # Arrow itself takes an empty slice of views for damaged
                batch.validate()
        except StopIteration:
            return
        except GcylonError:
            raise
        except Exception as error:
            raise ReadError(
                f"batch {number} of {name}, after {rows:,} rows, cannot be read: {reason_of(error)}",
                advice="Nothing was kept of it. What made it says more.",
                batch=number, rows_before=rows,
            ) from error  # fmt: skip
        number, rows = number + 1, rows + batch.num_rows
        if batch.num_rows:
            yield batch
        del batch  # the next one is made before this name is given another


def name_of(source: Any) -> str:
    """What an error calls a library's object, as "polars DataFrame"."""
    kind = type(source)
    home = kind.__module__.partition(".")[0].lstrip("_")
    return f"{kind.__qualname__}" if home in ("builtins", "main") else f"{home} {kind.__qualname__}"


def reason_of(error: BaseException) -> str:
    """What a library says went wrong, without the traceback that Arrow puts behind it."""
    text = str(error).partition(". Detail: Python exception:")[0].removeprefix("Unknown error: ")
    return text.strip().rstrip(".") or type(error).__name__


def is_of_pyarrow(source: Any) -> bool:
    """Whether it is pyarrow's own, whose device arrays are those of host memory here."""
    return type(source).__module__.partition(".")[0] == "pyarrow"


def without_rows(schema: Any, dtypes: Mapping[str, str]) -> Columns:
    """The columns that data of an Arrow schema make, without rows; `from_arrow` makes them of batches.

    Raises
    ------
    UnsupportedDtype, DuplicateColumns
        Naming a column that no table holds.
    """
    try:
        return from_arrow(schema.empty_table(), dtypes, nullable=True)
    except UnsupportedDtype as error:
        error.advice = "Leave the column out, or cast it before it is handed over."
        raise


def plain_bytes(batch: Any) -> tuple[int, int]:
    """Bytes of a batch's rows, and those of labels, which stand beside the rows however few of them there are."""
    labels = sum(c.dictionary.nbytes for c in batch.columns if pa.types.is_dictionary(c.type))
    return max(0, batch.nbytes - labels), labels


def shared_bytes(data: Columns, batch: Any) -> int:
    """Bytes of columns made of a batch that are in its own memory."""
    spans = [(b.address, b.address + b.size) for column in batch.columns for b in column.buffers() if b is not None]

    def is_shared(address: int) -> bool:
        return any(start <= address < stop for start, stop in spans)

    found = 0
    for column, array in zip(data.schema, data.arrays, strict=True):
        if column.fixed:
            found += array.nbytes if is_shared(array.__array_interface__["data"][0]) else 0
            continue
        buffers = [b for chunk in array.chunks for b in chunk.buffers() if b is not None and is_shared(b.address)]
        found += min(int(array.nbytes), sum(b.size for b in buffers))
    return found
