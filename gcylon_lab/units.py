"""The only place that formats and parses bytes, rates and times.

Memory is shown in binary units (GiB), rates in decimal ones (GB/s), as in the
field; both are read.
"""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_FACTORS = {
    "": 1, "b": 1,
    "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3, "t": 1000**4, "tb": 1000**4,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024**4,
}  # fmt: skip
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


def _digits(value: float) -> str:
    """Three digits that matter, never in exponent form."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_bytes(n: float) -> str:
    """Show a size in binary units, for example ``8.40 GiB``."""
    value, unit = float(n), 0
    # What would be shown as 1,024 is shown as 1 of the next unit.
    while round(abs(value)) >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    sign = "-" if value < 0 else ""
    return f"{sign}{_digits(abs(value))} {_BINARY[unit]}"


def format_rate(bytes_per_s: float) -> str:
    """Show a rate in GB/s (or MB/s when it is small)."""
    if bytes_per_s < 1e8:
        return f"{_digits(bytes_per_s / 1e6)} MB/s"
    return f"{_digits(bytes_per_s / 1e9)} GB/s"


def format_seconds(s: float) -> str:
    """Show a time with the digits that matter, for example ``12.5 ms``."""
    if s < 1e-3:
        return f"{_digits(s * 1e6)} µs"
    if s < 1:
        return f"{_digits(s * 1e3)} ms"
    if s < 120:
        return f"{_digits(s)} s"
    return f"{int(s // 60)} min {int(s % 60)} s"


def format_count(n: int) -> str:
    """Show a count with thousands apart."""
    return f"{n:,}"


def parse_bytes(text: str | int | float) -> int:
    """Read a size: a number of bytes, or text such as ``64 MiB`` or ``4GB``.

    Raises
    ------
    ValueError
        If the text is no size.
    """
    if isinstance(text, (int, float)):
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise ValueError(f"{text!r} is not a size; write for example 64MiB, 4GB or 1048576")
    return int(float(match[1]) * _FACTORS[match[2].lower()])


def parse_seconds(text: str | int | float) -> float:
    """Read a time: a number of seconds, or text such as ``250ms`` or ``2 min``.

    Raises
    ------
    ValueError
        If the text is no time.
    """
    if isinstance(text, (int, float)):
        return float(text)
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _TIMES:
        raise ValueError(f"{text!r} is not a time; write for example 250ms, 10s or 2min")
    return float(match[1]) * _TIMES[match[2].lower()]
