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
from ..plan.plan import check_strategy
from ..store.part import Part


@dataclass(frozen=True)
class RunOptions:
    """How a verb runs: what verbs take beside their own arguments.

    Attributes
    ----------
    strategy : str
    config : GcylonConfig or None
        None takes rank 0's live one.
    timeout_s : float or None
        Seconds until `DeadlineExceeded`, of each step of a verb that has several.
    """

    strategy: str = "auto"
    config: GcylonConfig | None = None
    timeout_s: float | None = None

    def check(self) -> None:
        """Refuse a strategy that there is not, a config that is none, and a deadline that is no time.

        Raises
        ------
        ArgumentError, ConfigError
            With what was given.
        """
        check_strategy(self.strategy)
        if self.config is not None and not isinstance(self.config, GcylonConfig):
            raise ConfigError(
                f"Expected a GcylonConfig for config, got {shown(self.config)}.",
                advice="Give one, for example gl.GcylonConfig().",
            )
        seconds: Any = self.timeout_s
        is_time = not isinstance(seconds, bool) and isinstance(seconds, Real) and float(seconds) >= 0
        if seconds is not None and not is_time:
            raise ArgumentError(
                f"Expected a time for timeout_s, got {shown(seconds)}.",
                advice="Give seconds, or None to wait for ever.",
            )


AUTO = RunOptions()


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
    options : RunOptions
    check : callable, optional
        Looks at the arguments on this rank and raises; told to all.
    others : tuple of Part
        Further inputs, which are not evicted for the operation either.
    """

    verb: str
    arguments: dict[str, Any]
    part: Part
    options: RunOptions = AUTO
    check: Callable[[], None] | None = None
    others: tuple[Part, ...] = ()

    def text(self, *, literals: bool = True) -> str:
        """Return the call in words, the same text for the same call; without literals, as it is recorded."""
        config = self.options.config
        arguments = dict(self.arguments) | {"strategy": self.options.strategy}
        if config is not None:  # what else it may be, `RunOptions.check` says to all ranks
            arguments["config"] = config.as_code() if isinstance(config, GcylonConfig) else config
        said = repr if literals else without_literals
        return f"{self.verb}({', '.join(f'{k}={said(v)}' for k, v in arguments.items())})"


def digest(text: str) -> int:
    """Return 63 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
