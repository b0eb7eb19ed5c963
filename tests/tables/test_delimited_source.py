"""What GPU engines make of a number or a time in a text, tried on the host: their source is C++ too."""

from __future__ import annotations

import ctypes
import datetime as dt
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gcylon_lab.backends.cudf.kernels.delimited_source import PARSE

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
_VALUE, _DOUBTFUL = 1, 2
_AROUND = """
#include <cmath>
#define __device__
#define __constant__
#define __clzll(x) __builtin_clzll(x)
{source}
extern "C" {{
int as_int(const u8* text, int length, i64* value) {{ return read_int(text, length, value); }}
int as_float(const u8* text, int length, double* value) {{ return read_float(text, length, value); }}
int as_time(const u8* text, int length, i64* value) {{ return read_time(text, length, 6, value); }}
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source, made = (tmp_path_factory.mktemp("source") / name for name in ("parse.cpp", "parse.so"))
    Path(source).write_text(_AROUND.format(source=PARSE))
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
