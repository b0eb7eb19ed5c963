"""A ``FigureWidget`` whose time axis belongs to whoever moved it last: a person by hand, or the clock.

An update and a hand may cross on their way. Only the page knows which came
first, so it decides there: what a person does to the time axis gets a number,
and until the kernel has heard that number, updates from it keep their hands off
the axis. They were made without knowing.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import traitlets
from plotly.graph_objects import FigureWidget

# Put around the model that plotly's script works with; PLOTLY is that script's own default export.
_HELD = """
const isTimeAxis = (key) => /^xaxis4?\\.(range|autorange)/.test(key);

// A page that is opened again must not number as it did before.
const page = Math.random().toString(36).slice(2);

function held(model) {
  let said = "", count = 0, pressed = false;
  const handMoved = (moved) => {
    const keys = Object.keys(moved).filter(isTimeAxis);
    if (!keys.length) return;
    said = `${page} ${++count}`;
    model.set("hand", { said, zoomed: moved["xaxis.autorange"] !== true });
  };
  const withoutTimeAxis = (update) => {
    const rest = Object.entries(update.layout_data || {}).filter(([key]) => !isTimeAxis(key));
    return { ...update, layout_data: Object.fromEntries(rest) };
  };
  model.on("change:heard", () => { if (model.get("heard") === said) said = ""; });
  return {
    on: (...args) => model.on(...args),
    off: (...args) => model.off(...args),
    send: (...args) => model.send(...args),
    save_changes: () => model.save_changes(),
    set(name, value) {
      if (name === "_js2py_relayout" && value) handMoved(value.relayout_data);
      model.set(name, value);
    },
    get(name) {
      const value = model.get(name);
      return name === "_py2js_update" && value && (said || pressed) ? withoutTimeAxis(value) : value;
    },
    // A stretch being drawn is in the axis' units: they stay until it is done.
    watch(el) {
      const press = () => { pressed = true; };
      const release = () => { pressed = false; };
      el.addEventListener("pointerdown", press, true);
      for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, release);
      return () => {
        el.removeEventListener("pointerdown", press, true);
        for (const kind of ["pointerup", "pointercancel"]) window.removeEventListener(kind, release);
      };
    },
  };
}

export default async () => {
  const plotly = typeof PLOTLY === "function" ? await PLOTLY() : PLOTLY;
  let mine;
  return {
    initialize(given) {
      mine = held(given.model);
      return plotly.initialize({ ...given, model: mine });
    },
    async render(given) {
      const release = mine.watch(given.el);
      const remove = await plotly.render({ ...given, model: mine });
      return () => { release(); if (remove) remove(); };
    },
  };
};
"""
_DEFAULT_EXPORT = re.compile(r"export\s*\{[^{}]*?([\w$]+) as default\s*\}")


def held_script(script: str) -> str:
    """Return plotly's script with the time axis held where a hand has put it; unchanged if it is none we know."""
    exports = list(_DEFAULT_EXPORT.finditer(script))
    if not exports:
        return script
    last = exports[-1]
    return script[: last.start()] + script[last.end() :] + _HELD.replace("PLOTLY", last[1])


class HandFigureWidget(FigureWidget):  # type: ignore[misc]
    """The widget. ``zoomed`` is whether a person has chosen a stretch of time.

    ``hand`` is what the page says of a person's last move of the time axis,
    ``heard`` the number of the last such move that was taken into account.
    Whoever changes the figure holds ``lock``: plotly's updates are made of parts,
    and the page's messages come on another thread.
    """

    # Text, not a file: anywidget keeps every widget alive whose script is a file.
    _esm = held_script(str(FigureWidget._esm))
    hand: Any = traitlets.Dict().tag(sync=True)
    heard: Any = traitlets.Unicode("").tag(sync=True)
    lock: Any = None
    zoomed = False

    def __init__(self, figure: dict[str, Any]) -> None:
        self.lock = threading.RLock()
        super().__init__(figure)
        # A page that counts views tells of each that goes, also where the kernel has closed the widget: an error there.
        self._view_count = None

    @traitlets.observe("hand")
    def _hand_moved(self, change: Any) -> None:
        with self.lock:
            self.zoomed = bool(change["new"].get("zoomed"))
            # After this the page takes the axis from here again.
            self.heard = str(change["new"].get("said", ""))

    def plotly_relayout(self, relayout_data: dict[str, Any], **kwargs: Any) -> None:
        """Take what a person did on the page, not in the middle of an update."""
        with self.lock:
            super().plotly_relayout(relayout_data, **kwargs)
