"""Pure: the stops of the memory limit's slider, and how a size stands in it."""

from __future__ import annotations

from ..units import GIB, MIB
from .series import readable

AUTO = "auto"
_LEAST = MIB


def limit_options(ceiling_bytes: int, current: int = 0) -> list[tuple[str, int]]:
    """Return (label, bytes): automatic, then sizes about a half apart up to the ceiling, the current one among them.

    Parameters
    ----------
    ceiling_bytes : int
        The largest limit; 0 if it is not known, then up to 1 TiB.
    current : int, optional
        A limit that must be among them; 0 is automatic.
    """
    ceiling = ceiling_bytes or 1024 * GIB
    sizes = {current, ceiling_bytes} - {0}
    size = _LEAST
    while size <= ceiling:
        sizes |= {size, size + size // 2} if size + size // 2 <= ceiling else {size}
        size *= 2
    return [(AUTO, 0)] + [(format_size(n), n) for n in sorted(sizes)]


def format_size(n: int) -> str:
    """Return a size as text that `units.parse_bytes` reads back exactly; 0 is ``auto``."""
    if not n:
        return AUTO
    text = readable(n)
    from ..units import parse_bytes

    return text if parse_bytes(text.replace(",", "")) == n else f"{n} B"
