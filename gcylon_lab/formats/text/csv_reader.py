"""Reading csv files, each rank its own lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Data, bounded
from ...backends.protocol.schema import listed_labels, require_distinct
from ...errors import ReadError
from ...units import format_count
from ..file_columns import require_columns
from ..filesystems import NO_UTF8, Storage, reading, unreadable
from ..read_plans import BytePiece, Paths, expand_paths, spread_bytes
from .blocks import (
    COMPRESSED,
    Block,
    Place,
    blocks,
    first_record,
    first_records,
    plain_blocks,
    require_closed,
    text_notes,
    text_size,
    text_start,
)
from .types import (
    Types,
    advice_on_times,
    asked_types,
    first_rounded,
    plain_type,
    rounded,
    rounded_columns,
    settled,
    type_of_integers,
    widened,
    with_offsets,
)

_LEAST_BLOCK_BYTES = 4096
_MOST_COLUMNS = 100_000
_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]{1,16}(?![0-9a-zA-Z])")
CSV_SUFFIXES = tuple(f"{end}{packed}" for end in (".csv", ".tsv", ".txt") for packed in ("", *COMPRESSED))
NULLS = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CsvPlan:
    """What one rank reads; all but the pieces is the same on all ranks."""

    pieces: tuple[BytePiece, ...]
    first: str
    names: tuple[str, ...]
    types: Types
    asked: Types  # those among the types that a user named
    delimiter: str
    header: bool
    quotes: bool
    storage: Storage = field(default_factory=Storage)
    notes: tuple[str, ...] = ()

    @property
    def quoting(self) -> bytes | None:
        """The delimiter, where double quotes enclose values."""
        return self.delimiter.encode() if self.quotes else None

    def start(self, path: str) -> tuple[int, tuple[str, ...]]:
        """Where the rows of a file begin, and its names."""
        if self.header:
            return _header(path, self.storage, self.delimiter, header=True, quotes=self.quotes)
        return text_start(path, self.storage), self.names


def plan_csv(
    paths: Paths,
    size: int,
    *,
    delimiter: str = ",",
    header: bool = True,
    dtype: Mapping[str, str] | None = None,
    parse_dates: Sequence[str] = (),
    newlines_in_values: bool = False,
    quotes: bool = True,
    storage: Storage | None = None,
) -> list[CsvPlan]:
    """Share the lines of csv files out evenly by bytes, in file order.

    Types come from the first megabytes of the first file with rows, which every rank looks at, so that all decide
    alike.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders or patterns, in UTF-8, perhaps compressed. Compressed files are not cut.
    size : int
        Number of ranks.
    delimiter : str
        Between values.
    header : bool
        Whether the first line of each file names the columns; without it they are ``"0"``, ``"1"`` and so on.
    dtype : mapping of column name to dtype text, optional
        Where the first megabytes do not tell.
    parse_dates : sequence of str
        Columns that are times; they become datetime64[us], or datetime64[us, UTC] where the first one has an offset
        from UTC, and [ns] where the first megabytes have nanoseconds. Others that look so stay text, as in pandas.
    newlines_in_values : bool
        Whether each file goes to one rank whole. Line ends inside quotes are known without it, but where a file is
        split over the ranks inside a quoted value of more than a MiB.
    quotes : bool
        Whether double quotes enclose values; otherwise they are plain characters.
    storage : Storage, optional
        How URLs are reached.

    Returns
    -------
    list of CsvPlan, shape (size,)

    Raises
    ------
    ReadError
        If a file is missing or cannot be read, or the first is empty; without names of columns, if all are.
    DuplicateColumns
        If a label stands twice.
    """
    storage = storage or Storage()
    files = expand_paths(paths, CSV_SUFFIXES, storage)
    asked = asked_types(dtype, tuple(parse_dates))
    quoting = delimiter.encode() if quotes else None
    # Without names, a file in which nothing stands tells no columns: a rank without rows writes one.
    first = files[0] if header else next((f for f in files if first_record(f, storage, quoting)[1].strip()), files[0])
    _, names = _header(first, storage, delimiter, header=header, quotes=quotes)
    require_columns(first, names, asked)
    plan = CsvPlan((), first, names, asked, asked, delimiter, header, quotes, storage)
    dates = [name for name in parse_dates if name not in (dtype or {})]
    with reading(first):
        types = _first_types(files, plan, dates)
    cuttable = [not (newlines_in_values or file.endswith(COMPRESSED)) for file in files]
    sizes = [(file, text_size(file, storage), cut) for file, cut in zip(files, cuttable, strict=True)]
    plan = replace(plan, types=types, notes=text_notes(sizes))
    return [replace(plan, pieces=tuple(share)) for share in spread_bytes(sizes, size)]


def _header(path: str, storage: Storage, delimiter: str, *, header: bool, quotes: bool) -> tuple[int, tuple[str, ...]]:
    """Where the first line with something in it ends, and the names of the columns that it tells."""
    quoting = delimiter.encode() if quotes else None
    start, line = first_record(path, storage, quoting)
    if not line.strip():
        raise ReadError(f"{path} is empty: it has no line that {'names' if header else 'shows'} its columns", path=path)
    if line.startswith((b"PAR1", b"ARROW1")):
        kind, reader = ("parquet", "read_parquet") if line.startswith(b"PAR1") else ("Arrow", "read_ipc")
        raise ReadError(f"{path} is a {kind} file, not a text file", advice=f"Read it with {reader}.", path=path)
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or 3 * line.count(0) > len(line):  # of ASCII each second byte is 0
        raise ReadError(f"{path} is written in UTF-16", advice="Convert it to UTF-8, as iconv does.", path=path)
    require_closed(Place(path, storage, start), line, quoting)
    columns = 1 + (re.sub(rb'"[^"]*"', b"", line) if quotes else line).count(delimiter.encode())
    if columns > _MOST_COLUMNS:
        raise ReadError(
            f"{path} has {format_count(columns)} columns; at most {format_count(_MOST_COLUMNS)} are read, as each "
            "takes some 25 kB of memory beside its values",
            advice="Write columns of one kind as rows: a name, and a value.",
            path=path,
        )
    if b"\r" in (re.sub(rb'"[^"]*"', b"", line) if quotes else line).rstrip(b"\r\n"):
        raise ReadError(
            f"{path} has lines that end in a carriage return alone, where a rank's share cannot be cut",
            advice="Convert it before, for example with tr '\\r' '\\n'.",
            path=path,
        )
    try:
        table = csv.read_csv(
            pa.BufferReader(line.rstrip(b"\r\n") + b"\n"),
            csv.ReadOptions(autogenerate_column_names=not header, block_size=len(line) + 2),
            csv.ParseOptions(delimiter=delimiter, quote_char='"' if quotes else False, newlines_in_values=quotes),
        )
        names = tuple(table.schema.names) if header else tuple(map(str, range(table.num_columns)))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    with reading(path):
        require_distinct(names)
    return start + len(line), names


def _first_types(files: Sequence[str], plan: CsvPlan, dates: Sequence[str]) -> Types:
    """Types of the columns that the first block with rows tells; those without a value there are left open."""
    for path in files:
        skip, names = plan.start(path)
        block = first_records(path, plan.storage, skip, plan.quoting)
        if block.strip():
            return _types_in(Place(path, plan.storage, skip), block, names, plan, dates)
    return plan.asked


def _types_in(place: Place, block: bytes, names: Sequence[str], plan: CsvPlan, dates: Sequence[str]) -> Types:
    texts = _texts(place, block, names, dates, plan)
    asked = with_offsets(plan.asked, dates, texts)
    found = _parse(place, block, names, asked, plan)
    types = {field.name: plain_type(field.type) for field in found.schema}
    rounded = rounded_columns(found, plan.asked)
    texts = _texts(place, block, names, rounded, plan)
    for name in rounded:
        types[name] = type_of_integers(texts(name)) or types[name]
    types |= dict.fromkeys(_hexadecimal(place, block, names, found, plan), pa.large_string())
    return {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)} | asked


def _texts(
    place: Place, block: bytes, names: Sequence[str], wanted: Sequence[str], plan: CsvPlan
) -> Callable[[str], Any]:
    """Some columns as they stand in the file, less missing values, by name."""
    if not wanted:  # of none, all would be read
        return lambda name: pa.chunked_array([], pa.string())
    table = _parse(place, block, names, dict.fromkeys(wanted, pa.string()), plan, only=wanted)
    return lambda name: table.column(name).drop_null()


def _hexadecimal(place: Place, block: bytes, names: Sequence[str], table: Any, plan: CsvPlan) -> list[str]:
    """Columns that Arrow took for ints, ``0x10`` among them; as in pandas, they are text unless ints are asked for."""
    if not (b"0x" in block or b"0X" in block) or not _HEXADECIMAL.search(block):
        return []
    ints = [f.name for f in table.schema if pa.types.is_integer(f.type) and f.name not in plan.asked]
    texts = _texts(place, block, names, ints, plan)
    return [name for name in ints if pc.any(pc.match_substring(texts(name), "x", ignore_case=True)).as_py()]


def _parse(
    place: Place, block: bytes, names: Sequence[str], types: Types, plan: CsvPlan, only: Sequence[str] | None = None
) -> Any:
    # As in pandas, 1 and 0 are bools only where bools are asked for.
    ones = any(pa.types.is_boolean(type_) for type_ in plan.asked.values())
    try:
        return csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=list(names), block_size=len(block) + 1, use_threads=False),
            csv.ParseOptions(
                delimiter=plan.delimiter, quote_char='"' if plan.quotes else False, newlines_in_values=plan.quotes
            ),
            csv.ConvertOptions(
                column_types=types,
                null_values=NULLS,
                strings_can_be_null=True,
                include_columns=only,
                true_values=["true", "True", "TRUE", *["1"] * ones],
                false_values=["false", "False", "FALSE", *["0"] * ones],
            ),
        )
    except pa.ArrowInvalid as error:
        advice = _advice(str(error), names, types, quoted=plan.quotes and b'"' in block)
        row, column = re.search(r"Row #(\d+)", str(error)), re.search(r"column #(\d+)", str(error))
        line = place.line(block, int(row[1]), plan.quoting) if row else None
        failed = unreadable(place.path, error, advice, line=line)
        failed.numbers |= {"column": names[int(column[1])]} if column else {}
        raise failed from None


def _advice(reason: str, names: Sequence[str], types: Types, *, quoted: bool) -> str:
    """What to change, by what arrow says went wrong."""
    if "invalid UTF8" in reason:
        return NO_UTF8
    value = re.search(r"column #(\d+).*conversion error", reason)
    if value is not None:
        name = names[int(value[1])]
        if pa.types.is_timestamp(types.get(name, pa.null())):
            return advice_on_times(name, types[name], reason)
        return f"Pass dtype={{{name!r}: 'str'}}, or another dtype that all its values have."
    plain = " If double quotes are plain characters, pass quotes=False." if quoted else ""
    return f"Each line has to hold as many values as there are columns; is it the right delimiter?{plain}"


def read_csv_chunks(
    plan: CsvPlan,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = 32 * 1024**2,
    max_rows: int | None = None,
    decode: Callable[[Block, Sequence[str]], Data | None] | None = None,
) -> Iterator[Data]:
    """Read what a plan gives to one rank, piece by piece.

    Parameters
    ----------
    plan : CsvPlan
    columns : sequence of str, optional
        Only these, in this order.
    max_bytes : int
        About the largest size of a piece; a longer line is a piece of its own.
    max_rows : int, optional
        The most rows of a piece.
    decode : callable, optional
        Is given whole lines and the names of their values; what it makes of them is a piece, unless it is None: then
        they are read here.

    Yields
    ------
    Data
        In file order; one without rows where there is nothing to read. Ints and bools with empty values are
        nullable dtypes (Int64, boolean), and ints become floats in a piece that holds fractions.

    Raises
    ------
    ReadError
        If a file cannot be read, has other columns than the first, or holds values that do not fit the types.
    """
    wanted = require_columns(plan.first, plan.names, columns)
    any_rows = False
    for piece in plan.pieces:
        block_bytes = max(_LEAST_BLOCK_BYTES, max_bytes // 4)  # text grows when it becomes numbers
        with reading(piece.path):
            for made in _made(piece, plan, wanted, block_bytes, decode):
                any_rows = True
                if isinstance(made, pa.Table):
                    yield from bounded(from_arrow(made, nullable=True), max_bytes, max_rows)
                else:
                    yield made
                del made  # before the next lines are read
    if not any_rows:
        fields = [pa.field(name, plan.types.get(name, pa.null())) for name in wanted]
        yield from_arrow(pa.schema(fields).empty_table(), nullable=True)


def _made(
    piece: BytePiece, plan: CsvPlan, wanted: Sequence[str], block_bytes: int, decode: Callable[..., Data | None] | None
) -> Iterator[Any]:
    """Tables of Arrow, or what ``decode`` made."""
    skip, names = plan.start(piece.path)
    if set(names) != set(plan.names):
        raise ReadError(
            f"{piece.path} has the columns {listed_labels(names)}, but the first file has {listed_labels(plan.names)}",
            advice="Read files with the same columns.",
            path=piece.path,
        )
    found: Iterator[tuple[Place, Block]] = (blocks if decode is None else plain_blocks)(
        piece, plan.storage, skip, block_bytes, plan.quoting
    )
    for place, given in found:
        if decode is not None and (data := decode(given, names)) is not None:
            yield data
            del data
            continue
        block = bytes(given)
        table = _typed(place, block, names, plan).select(wanted)
        suspects = rounded_columns(table, plan.asked)
        texts = _texts(place, block, names, suspects, plan)
        for name in suspects:
            value = first_rounded(texts(name))
            if value is not None:
                raise rounded(piece.path, name, value)
        for name in _hexadecimal(place, block, names, table, plan):
            widened(piece.path, plan.types, {name: pa.string()}, "an int in hexadecimal is text")
        if table.num_rows:
            yield table


def _typed(place: Place, block: bytes, names: Sequence[str], plan: CsvPlan) -> Any:
    try:
        table = _parse(place, block, names, plan.types, plan)
    except ReadError as error:
        if error.numbers.get("column") in plan.asked:
            raise
        found = {field.name: plain_type(field.type) for field in _parse(place, block, names, {}, plan).schema}
        table = _parse(place, block, names, widened(place.path, plan.types, found, error.message), plan)
    again = settled(table.schema, plan.types)
    return table if again is None else _parse(place, block, names, again, plan)
