"""Pure: the stops of the memory limit's slider, and how a size stands in it."""

from __future__ import annotations

from collections.abc import Iterable

from ...units import GIB, KIB, MIB, parse_bytes
from ..figures.series import readable

AUTO = "auto"
_LEAST = MIB


def limit_options(ceiling_bytes: int, more: Iterable[int] = ()) -> list[tuple[str, int]]:
    """Return (label, bytes): automatic, then sizes about a half apart up to the ceiling, and more that are asked for.

    Parameters
    ----------
    ceiling_bytes : int
        The largest limit; 0 if it is not known, then up to 1 TiB.
    more : iterable of int, optional
        Limits that must be among them; 0 is automatic.
    """
    ceiling = ceiling_bytes or 1024 * GIB
    sizes = {*more, ceiling_bytes} - {0}
    size = _LEAST
    while size <= ceiling:
        sizes |= {size, size + size // 2} if size + size // 2 <= ceiling else {size}
        size *= 2
    return [(AUTO, 0)] + [(readable(n), n) for n in sorted(sizes)]


def format_size(n: int) -> str:
    """Return a size as text that `units.parse_bytes` reads back exactly; 0 is ``auto``."""
    if not n:
        return AUTO
    eighths = [f"{n / unit:.3f} {name}" for unit, name in ((GIB, "GiB"), (MIB, "MiB")) if n >= unit]
    for text in (readable(n), *eighths):
        if parse_bytes(text.replace(",", "")) == n:
            return text
    return f"{n // KIB} KiB" if n % KIB == 0 else f"{n} B"
