"""``%lab config``: settings as people write them, ``gpu_memory_limit=64MiB``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ...config import GcylonConfig, nearest
from ...errors import ConfigError
from ...units import format_bytes
from ..controls.limit_slider import format_size
from .shown import Shown, table

PRESETS = ("default", "low_memory", "high_throughput")
FIELDS = {field.name: str(field.type) for field in fields(GcylonConfig)}
FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}
_SIZES = ("gpu_memory_limit", "chunk_size_bytes", "host_memory_limit")
_AUTOMATIC = {
    "gpu_memory_limit": "the limit of the start, or the fraction of what was free",
    "chunk_size_bytes": "the plan chooses",
    "host_memory_limit": "half of the memory available at start",
    "spill_dir": "the system's temporary folder",
}


def split_words(line: str) -> list[str]:
    """The words of a line, with ``name = value`` written as one.

    Raises
    ------
    ConfigError
        If a quote is not closed.
    """
    try:
        return shlex.split(re.sub(r"\s*=\s*", "=", line))
    except ValueError as error:
        raise ConfigError(f"{line!r} cannot be read: {error}.", advice="Close the quotes.") from None


def changed(config: GcylonConfig, words: Sequence[str]) -> GcylonConfig:
    """A config with what the words say: a preset's name, or ``name=value``, in this order.

    Parameters
    ----------
    config : GcylonConfig
    words : sequence of str
        A value is text as in the environment; "default" takes a field's default.

    Raises
    ------
    ConfigError
        If a name is no setting, or a value is out of its range; the message says the range.
    """
    for word in words:
        name, equals, text = word.partition("=")
        if equals:
            config = config.with_values(**{name: _value(name, text)})
        elif word in PRESETS:
            config = getattr(GcylonConfig, word)()
        else:
            meant = nearest(word, [*FIELDS, *PRESETS])
            raise ConfigError(
                f"{word!r} sets nothing.",
                advice=(f"Did you mean {meant}? " if meant else "")
                + f"Write name=value, as in gpu_memory_limit=64MiB, or one of {', '.join(PRESETS)}.",
            )
    return config


def taken_back(before: GcylonConfig, words: Sequence[str]) -> str:
    """What a preset among the words took back of the settings that had been made, and how to keep it; "" if nothing."""
    after = changed(before, words)
    names = [word for word in words if word in PRESETS]
    said = {word.partition("=")[0] for word in words}
    default = GcylonConfig()
    lost = [
        name for name in FIELDS
        if names and name not in said
        and getattr(before, name) != getattr(default, name) == getattr(after, name)
    ]  # fmt: skip
    if not lost:
        return ""
    was = " ".join(f"{name}={_written(name, getattr(before, name))}" for name in lost)
    line = " ".join([*words, was])
    return f"{names[-1]} sets all settings, so what was set before is gone: {was}. To have both: %lab config {line}"


def describe(config: GcylonConfig) -> Shown:
    """The settings as a table: what each is, and its default."""
    default = GcylonConfig()
    rows = [
        [name, _text(name, getattr(config, name)), _text(name, getattr(default, name)), _note(name, config)]
        for name in FIELDS
    ]
    return table(["setting", "now", "default", ""], rows, below=f"As code: {config.as_code()}")


def _value(name: str, text: str) -> Any:
    kind = FIELDS.get(name, "")
    if text == "default" and kind:
        return getattr(GcylonConfig(), name)
    if kind == "bool":
        if text.lower() not in FLAGS:
            raise ConfigError(f"{name}={text!r} is invalid.", advice="Expected true or false.")
        return FLAGS[text.lower()]
    try:
        if kind == "float":
            return float(text)
        return int(text) if kind == "int" and name not in _SIZES else text
    except ValueError:
        return text  # the config says what is wrong with it, and the range


def _text(name: str, value: Any) -> str:
    if name in _SIZES:
        return format_bytes(value) if value else "0"
    return str(value) if value != "" else "''"


def _written(name: str, value: Any) -> str:
    """A value as it is written after a setting's name."""
    if name in _SIZES:
        return re.sub("[ ,]", "", format_size(value))
    return str(value).lower() if isinstance(value, bool) else shlex.quote(str(value))


def _note(name: str, config: GcylonConfig) -> str:
    value = getattr(config, name)
    parts = ["changed"] * (value != getattr(GcylonConfig(), name))
    if not value and name in _AUTOMATIC:
        parts.append(_AUTOMATIC[name])
    return ", ".join(parts)
