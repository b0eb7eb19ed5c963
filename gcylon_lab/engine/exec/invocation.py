"""What a verb was called with on a rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ...backends.protocol.expressions import without_literals
from ...backends.protocol.scalars import shown
from ...config import GcylonConfig
from ...errors import ArgumentError, ConfigError
from ..store.part import Part


@dataclass(frozen=True)
class Request:
    """What a verb was called with on this rank.

    Attributes
    ----------
    verb : str
    arguments : dict
        Plain values that must be the same on all ranks.
    part : Part
        The input.
    strategy : str
    config : GcylonConfig or None
        None takes rank 0's live one.
    timeout_s : float or None
        Seconds until `DeadlineExceeded`.
    check : callable, optional
        Looks at the arguments on this rank and raises; told to all.
    others : tuple of Part
        Further inputs, which are not evicted for the operation either.
    """

    verb: str
    arguments: dict[str, Any]
    part: Part
    strategy: str = "auto"
    config: GcylonConfig | None = None
    timeout_s: float | None = None
    check: Callable[[], None] | None = None
    others: tuple[Part, ...] = ()

    def text(self, *, literals: bool = True) -> str:
        """Return the call in words, the same text for the same call; without literals, as it is recorded."""
        arguments = dict(self.arguments) | {"strategy": self.strategy}
        if self.config is not None:
            known = isinstance(self.config, GcylonConfig)  # what it is if not, `check_settings` says to all ranks
            arguments["config"] = self.config.as_code() if known else self.config
        said = repr if literals else without_literals
        return f"{self.verb}({', '.join(f'{k}={said(v)}' for k, v in arguments.items())})"


def check_settings(config: object, timeout_s: object) -> None:
    """Refuse a config that is none, and a deadline that is no time.

    Raises
    ------
    ConfigError, ArgumentError
        With what was given.
    """
    if config is not None and not isinstance(config, GcylonConfig):
        raise ConfigError(
            f"Expected a GcylonConfig for config, got {shown(config)}.",
            advice="Give one, for example gl.GcylonConfig().",
        )
    seconds: Any = timeout_s
    is_time = not isinstance(seconds, bool) and isinstance(seconds, Real) and float(seconds) >= 0
    if timeout_s is not None and not is_time:
        raise ArgumentError(
            f"Expected a time for timeout_s, got {shown(timeout_s)}.", advice="Give seconds, or None to wait for ever."
        )


def digest(text: str) -> int:
    """Return 63 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
