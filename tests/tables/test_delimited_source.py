"""What GPU engines make of a number or a time in a text, tried on the host: their source is C++ too."""

from __future__ import annotations

import ctypes
import datetime as dt
import itertools
import math
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

from gcylon_lab.backends.cudf.kernels.delimited_source import KERNELS, PARSE

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
_VALUE, _DOUBTFUL = 1, 2
_AROUND = """
#include <cmath>
#include <vector>
#define __device__
#define __constant__
#define __clzll(x) __builtin_clzll(x)
#define __global__
#define __launch_bounds__(n)
#define __shared__ static
#define __syncthreads()
static struct {{ unsigned x; }} blockIdx, threadIdx;
template <typename T> static T atomicAdd(T* at, T more) {{ T before = *at; *at += more; return before; }}
{source}
#define EACH(count) for (blockIdx.x = 0; blockIdx.x < (count); ++blockIdx.x)
extern "C" {{
int as_int(const u8* text, int length, i64* value) {{ return read_int(text, length, value); }}
int as_float(const u8* text, int length, double* value) {{ return read_float(text, length, value); }}
int as_time(const u8* text, int length, i64* value) {{ return read_time(text, length, 6, value); }}

// As `read_delimited` starts kernels, of blocks of one thread: how many marks there are, and whether there are quotes.
i64 find_marks(const u8* text, i64 nbytes, u8 delimiter, int quotes, int columns, u32* marks, int* told, int* quoted) {{
    i64 blocks = (nbytes + STEP - 1) / STEP, sum = 0;
    std::vector<u32> counts(blocks);
    std::vector<i64> before(blocks), ends(blocks);
    EACH(blocks) count_quotes(text, nbytes, counts.data());
    for (i64 i = 0; i < blocks; ++i) {{ before[i] = sum; sum += counts[i]; }}
    *quoted = quotes && sum;
    i64* given = *quoted ? before.data() : 0;
    EACH(blocks) count_marks(text, nbytes, delimiter, given, counts.data(), told);
    sum = 0;
    for (i64 i = 0; i < blocks; ++i) ends[i] = sum += counts[i];
    if (sum % columns == 0)
        EACH(blocks) place_marks(text, nbytes, delimiter, given, columns, ends.data(), marks, told);
    return sum;
}}

#define READ(NAME, KERNEL, TYPE) void NAME(const u8* text, const u32* marks, i64 rows, int columns, int column, \
        int quoted, const u8* nulls, u8* valid, int* told, TYPE* values, i64 option) {{ \
    EACH(rows) KERNEL(text, marks, rows, columns, column, quoted, nulls, valid, told, values, option); \
}}
READ(ints, read_ints, i64)
READ(bools, read_bools, bool)
READ(times, read_times, i64)
READ(lengths, measure_texts, int)
void floats(const u8* text, const u32* marks, i64 rows, int columns, int column, int quoted, const u8* nulls, u8* valid,
            int* told, double* values, i64 option, i64* left) {{
    EACH(rows) read_floats(text, marks, rows, columns, column, quoted, nulls, valid, told, values, option, left);
}}
void texts(const u8* text, const u32* marks, i64 rows, int columns, int column, int quoted, const int* offsets,
           u8* chars) {{
    blockIdx.x = 0;
    for (threadIdx.x = 0; threadIdx.x < rows * 32; ++threadIdx.x)
        copy_texts(text, marks, rows, columns, column, quoted, offsets, chars);
    threadIdx.x = 0;
}}
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source, made = (tmp_path_factory.mktemp("source") / name for name in ("parse.cpp", "parse.so"))
    Path(source).write_text(
        _AROUND.format(source=(PARSE + KERNELS).replace("#define THREADS 256", "#define THREADS 1"))
    )
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return ctypes.CDLL(str(made))


def read(function: Any, text: str, kind: Any) -> Any:
    """The value of a text, or None where it is doubtful."""
    value, given = kind(), text.encode()
    state = function(given, len(given), ctypes.byref(value))
    assert state in (_VALUE, _DOUBTFUL)
    return value.value if state == _VALUE else None


def number(draws: random.Random) -> str:
    """Digits with a point somewhere, and perhaps an exponent."""
    kind = draws.random()
    if kind < 0.3:
        text = repr(draws.random() * 10.0 ** draws.randint(-8, 15))
    elif kind < 0.5:
        text = f"{draws.randint(0, 10**19 - 1)}e-{draws.randint(0, 27)}"
    elif kind < 0.6:  # halfway between two doubles, or next to that
        text = f"{(2 * draws.randint(2**52, 2**53) + 1) * 5 ** draws.randint(0, 2) + draws.randint(-1, 1)}e-1"
    else:
        digits = str(draws.randint(0, 10 ** draws.randint(1, 19) - 1))
        place = draws.randint(0, len(digits))
        text = f"{digits[:place]}.{digits[place:]}"
    return "-" * draws.randint(0, 1) + text


def test_floats_are_rounded_as_python_rounds_them(library: Any) -> None:
    draws, sure = random.Random(7), 0
    for _ in range(30_000):
        text = number(draws)
        value = read(library.as_float, text, ctypes.c_double)
        if value is not None:
            sure += 1
            assert value == float(text) and math.copysign(1, value) == math.copysign(1, float(text)), text
    assert sure > 24_000


@pytest.mark.parametrize(
    "text", ["", "-", ".", "+1", " 1", "1 ", "1e", "e5", "1e+", "0x10", "inf", "nan", "1.2.3", "1,5"]
)
def test_what_is_no_plain_float_is_doubtful(library: Any, text: str) -> None:
    assert read(library.as_float, text, ctypes.c_double) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-0", 0), ("007", 7), ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None), ("-9223372036854775809", None), ("99999999999999999999", None), ("", None),
        ("-", None), ("+1", None), ("1 ", None), ("1.0", None), ("0x10", None),
    ],
)  # fmt: skip
def test_ints(library: Any, text: str, value: int | None) -> None:
    assert read(library.as_int, text, ctypes.c_int64) == value


def test_times_are_those_of_python(library: Any) -> None:
    draws, origin = random.Random(7), dt.datetime(1970, 1, 1)
    for _ in range(5_000):
        days, parts = draws.randint(0, 3_652_058), draws.choice([0, draws.randint(0, 999_999)])
        time = dt.datetime.min + dt.timedelta(days=days, seconds=draws.randint(0, 86_399), microseconds=parts)
        for text in (str(time), time.isoformat(), str(time.date()), str(time)[:16]):
            told = (dt.datetime.fromisoformat(text) - origin) // dt.timedelta(microseconds=1)
            assert read(library.as_time, text, ctypes.c_int64) == told, text


@pytest.mark.parametrize(
    "text",
    ["2021-02-29", "2020-13-01", "2020-00-10", "2020-01-32", "0000-01-01", "2020-1-1", "2020-01-01 24:00",
     "2020-01-01 10:60", "2020-01-01 10:10:60", "2020-01-01 10", "2020-01-01Z", "2020-01-01 10:10:10.1234567",
     "2020-01-01 10:10:10.", "20200101", " 2020-01-01"],
)  # fmt: skip
def test_what_is_no_plain_time_is_doubtful(library: Any, text: str) -> None:
    assert read(library.as_time, text, ctypes.c_int64) is None


NULLS = ("", "NA", "null", "nan")
TYPES = {
    "ints": pa.int64(), "floats": pa.float64(), "bools": pa.bool_(), "times": pa.timestamp("us"), "texts": pa.string(),
}  # fmt: skip
VALUES = {
    "ints": st.integers(-(2**63), 2**63 - 1).map(str), "floats": st.floats(-1e15, 1e15).map(repr),
    "bools": st.sampled_from(["true", "False", "TRUE"]),
    "times": st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(str),
    "texts": st.text(alphabet='ab,;"\n\r é→', max_size=6),
}  # fmt: skip
ODD = st.sampled_from(
    [*NULLS, "x", " 1", "1 ", "inf", "1e-300", 'a"b', '""', '"a""b"', '"a"b', "a\r", "0x1", "+1", "\n"]
)


def read_by_kernels(library: Any, text: bytes, kinds: list[str], quotes: bool) -> list[list[Any]] | None:
    """Values of each column; None where the host would have to read them."""
    told, marks = (ctypes.c_int * (5 + len(kinds)))(), (ctypes.c_uint32 * (len(text) + 1))()
    left, quoted = (ctypes.c_int64 * 4096)(), ctypes.c_int()
    library.find_marks.restype = ctypes.c_int64
    size, columns = ctypes.c_int64(len(text)), len(kinds)
    count = library.find_marks(text, size, ctypes.c_uint8(44), int(quotes), columns, marks, told, ctypes.byref(quoted))
    if count % columns or any(told[:2]):
        return None
    rows, made = count // columns, []
    nulls = b"".join(bytes([len(one)]) + one.encode() for one in NULLS) + b"\xff"
    for place, kind in enumerate(kinds):
        valid = (ctypes.c_uint8 * rows)()
        given = (text, marks, ctypes.c_int64(rows), columns, place, quoted, nulls, valid, told)
        if kind == "texts":
            lengths = (ctypes.c_int * rows)()
            library.lengths(*given, lengths, ctypes.c_int64(0))
            offsets = (ctypes.c_int * (rows + 1))(*itertools.accumulate(lengths, initial=0))
            chars = (ctypes.c_uint8 * (offsets[rows] + 1))()
            library.texts(*given[:6], offsets, chars)
            values: Any = [bytes(chars[offsets[i] : offsets[i + 1]]).decode() for i in range(rows)]
        else:
            kind_of = {"ints": ctypes.c_int64, "floats": ctypes.c_double, "bools": ctypes.c_bool}
            values = (kind_of.get(kind, ctypes.c_int64) * rows)()
            option = ctypes.c_int64(6 if kind == "times" else 0)
            getattr(library, kind)(*given, values, option, *([left] if kind == "floats" else []))
        made.append([value if there else None for value, there in zip(values, valid, strict=True)])
    return None if told[2] or told[4] else made


def read_by_arrow(text: bytes, kinds: list[str], quotes: bool) -> list[list[Any]] | None:
    names = [str(place) for place in range(len(kinds))]
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(quote_char='"' if quotes else False, newlines_in_values=quotes),
            csv.ConvertOptions(
                column_types={name: TYPES[kind] for name, kind in zip(names, kinds, strict=True)},
                null_values=list(NULLS), strings_can_be_null=True, true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )  # fmt: skip
    except pa.ArrowInvalid:
        return None
    return [
        column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for column in table.columns
    ]


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kinds=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3), odd=st.booleans())
def test_lines_are_read_as_arrow_reads_them_or_left_to_it(
    library: Any, data: st.DataObject, kinds: list[str], odd: bool
) -> None:
    quotes = data.draw(st.sampled_from([True, True, False]))

    def written(value: str) -> str:
        must = quotes and any(one in value for one in ',"\n\r')
        return '"' + value.replace('"', '""') + '"' if must or (quotes and data.draw(st.booleans())) else value

    def one_of(kind: str) -> str:
        if odd and data.draw(st.integers(0, 7)) == 0:
            return data.draw(ODD)
        plain = VALUES[kind] if quotes else VALUES[kind].map(lambda value: re.sub('[,\n\r"]', "", value))
        return written(data.draw(plain | st.sampled_from(NULLS)))

    lines = [",".join(map(one_of, kinds)) for _ in range(data.draw(st.integers(1, 8)))]
    text = ("\n".join(lines) + "\n").encode()
    found, wanted = read_by_kernels(library, text, kinds, quotes), read_by_arrow(text, kinds, quotes)
    if found is None:
        assert odd or kinds == ["texts"] or any("\r" in line or "e" in line for line in lines) or len(kinds) == 1
    else:
        assert wanted is not None and str(found) == str(wanted)
