"""The widgets of the settings: what they look like, what config they show, what config they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from ...config import GcylonConfig
from ...units import parse_bytes
from ..figures.series import readable
from .limit_slider import AUTO, format_size, limit_options

PRESETS: dict[str, Callable[[], GcylonConfig]] = {
    "default": GcylonConfig.default,
    "low memory": GcylonConfig.low_memory,
    "high throughput": GcylonConfig.high_throughput,
}
# What belongs to the machine, which a preset leaves as it is.
KEPT = ("spill_dir", "host_memory_limit")
_CHUNKS = (AUTO, "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB")
_HOST_LIMITS = (AUTO, "1 GiB", "4 GiB", "16 GiB", "64 GiB")
_WIDTH = "254px"
_MOST_ROWS = 2**31 - 1


class SettingsForm:
    """Every field of `GcylonConfig` as a widget; those that are rarely changed behind a button.

    Parameters
    ----------
    ceiling_bytes : int
        The largest limit that can be asked for; 0 if it is not known.
    on_cpu : bool
        Whether the ranks have no GPU: pinned memory does nothing then.
    """

    def __init__(self, *, ceiling_bytes: int, on_cpu: bool) -> None:
        self._ceiling = ceiling_bytes
        self._shown_limits: set[int] = set()
        self.preset = _field(
            w.Dropdown, "preset", "Sets all but spill folder and pinned limit", options=["custom", *PRESETS]
        )
        self._make_memory()
        self._make_chunks()
        self._make_switches(on_cpu)
        self._make_places(on_cpu)
        self.values = (
            self.limit, self.fraction, self.chunk, self.rows, self.staging, self.disk, self.pinned, self.host_limit,
            self.spill,
        )  # fmt: skip
        self.limit_range = _unit("")
        self._say_range()
        self.more = w.ToggleButton(
            description="more settings", tooltip="min rows, pinned buffers and their limit, spill folder",
            layout={"width": "124px", "margin": "2px 0 2px 8px"},
        )  # fmt: skip
        self._rare = w.VBox([self.rows, self.pinned, self.host_limit, self.spill], layout={"display": "none"})
        self.more.observe(self._show_rare, "value")
        self.widgets = [
            self.preset, self.limit_range, self.limit,
            _unit("if auto: fraction of free memory, 0.05 to 1"), self.fraction, self.chunk,
            self.staging, self.disk, self.more, self._rare,
        ]  # fmt: skip

    def _make_memory(self) -> None:
        layout = {"width": "250px", "margin": "0 0 0 8px"}
        self.limit = w.SelectionSlider(
            options=[(AUTO, 0)], layout=layout, tooltip="gpu_memory_limit: auto takes the fraction below"
        )
        self.fraction = w.FloatSlider(
            min=0.05, max=1.0, step=0.05, readout_format=".2f", layout=layout,
            tooltip="gpu_memory_fraction: of what was free at start; used when the limit is auto",
        )  # fmt: skip

    def _make_chunks(self) -> None:
        self.chunk = _field(
            w.Combobox, "chunk size", "chunk_size_bytes: auto, or a size of at least 1 KiB, such as 4 MiB",
            options=_CHUNKS, ensure_option=False, continuous_update=False,
        )  # fmt: skip
        self.rows = _field(
            w.IntText, "min rows",
            f"min_chunk_rows, 1 to {_MOST_ROWS:,}: chunks are not made smaller, as long as the budget allows",
            continuous_update=False,
        )  # fmt: skip

    def _make_switches(self, on_cpu: bool) -> None:
        self.staging = _switch("staging allowed", "allow_cpu_staging: chunks may leave the device tier")
        self.disk = _switch("spill to disk", "allow_disk_spill: chunks may be staged to disk")
        self.pinned = _switch(f"pinned buffers{_gpu_only(on_cpu)}", "use_pinned_memory: page-locked staging buffers")
        self.pinned.disabled = on_cpu

    def _make_places(self, on_cpu: bool) -> None:
        self.host_limit = _field(
            w.Combobox, "pinned limit",
            f"host_memory_limit of each rank: auto (half of what is available), or a size{_gpu_only(on_cpu)}",
            options=_HOST_LIMITS, ensure_option=False, continuous_update=False,
        )  # fmt: skip
        self.host_limit.disabled = on_cpu
        self.spill = _field(
            w.Text, "spill folder", "spill_dir: a folder on every host; empty for the system's temporary folder",
            placeholder="temporary folder", continuous_update=False,
        )  # fmt: skip

    def _show_rare(self, _change: Any) -> None:
        self._rare.layout.display = "" if self.more.value else "none"

    def _say_range(self) -> None:
        most = readable(self._ceiling) if self._ceiling else "1 TiB"
        self.limit_range.value = _small(f"limit of a rank: auto, or 1 MiB to {most}")

    def reach(self, ceiling_bytes: int) -> bool:
        """Take up another largest limit, as after a restart; say whether it is another one. `show` comes next."""
        if ceiling_bytes == self._ceiling:
            return False
        self._ceiling, self._shown_limits = ceiling_bytes, set()
        self._say_range()
        return True

    def show(self, config: GcylonConfig) -> None:
        """Bring the widgets to a config."""
        # A limit once shown stays on the slider: stops that come and go would move it under the pointer.
        self._shown_limits.add(config.gpu_memory_limit)
        options = limit_options(self._ceiling, self._shown_limits)
        if list(self.limit.options) != options:
            self.limit.options = options
        self.limit.value = config.gpu_memory_limit
        self.fraction.value = config.gpu_memory_fraction
        self.fraction.disabled = config.gpu_memory_limit != 0
        self.chunk.value = format_size(config.chunk_size_bytes)
        self.rows.value = config.min_chunk_rows
        self.staging.value = config.allow_cpu_staging
        self.disk.value = config.allow_disk_spill
        self.disk.disabled = not config.allow_cpu_staging
        self.pinned.value = config.use_pinned_memory
        self.host_limit.value = format_size(config.host_memory_limit)
        self.spill.value = config.spill_dir
        matching = [name for name in PRESETS if preset(name, config) == config]
        self.preset.value = matching[0] if matching else "custom"

    def read(self, before: GcylonConfig) -> GcylonConfig:
        """Return the config that the widgets say, made from the one before.

        Raises
        ------
        ConfigError, ValueError
            If a value is out of range, or is no size.
        """
        return before.with_values(
            gpu_memory_limit=self.limit.value,
            gpu_memory_fraction=round(self.fraction.value, 4),
            chunk_size_bytes=_size(self.chunk.value),
            min_chunk_rows=self.rows.value,
            allow_cpu_staging=self.staging.value,
            allow_disk_spill=self.disk.value,
            use_pinned_memory=self.pinned.value,
            host_memory_limit=_size(self.host_limit.value),
            spill_dir=self.spill.value.strip(),
        )


def preset(name: str, config: GcylonConfig) -> GcylonConfig:
    """Return a preset with those fields of ``config`` that belong to the machine."""
    return PRESETS[name]().with_values(**{field: getattr(config, field) for field in KEPT})


def _field(kind: Any, label: str, tip: str, **more: Any) -> Any:
    layout = {"width": _WIDTH, "margin": "1px 0"}
    return kind(description=label, tooltip=tip, layout=layout, style={"description_width": "92px"}, **more)


def _switch(label: str, tip: str) -> Any:
    return w.Checkbox(description=label, tooltip=tip, indent=False, layout={"width": _WIDTH, "margin": "0 0 0 8px"})


def _unit(text: str) -> Any:
    return w.HTML(_small(text), layout={"margin": "0 0 0 8px"})


def _small(text: str) -> str:
    return f'<span class="gcylon-unit">{text}</span>'


def _gpu_only(on_cpu: bool) -> str:
    return " (GPU only)" if on_cpu else ""


def _size(text: str) -> int:
    text = text.strip().lower()
    return 0 if text in ("", AUTO) else parse_bytes(text)
