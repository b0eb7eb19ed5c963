"""Pure: what runs now, or ran last, in one line."""

from __future__ import annotations

from html import escape

from ...units import format_seconds
from ..figures.series import percent, readable
from ..figures.view import Operation, View


def running_html(view: View) -> str:
    """Return the operation that runs, with its rounds as a bar, else the latest one with what it took."""
    running = [op for op in view.operations if op.running]
    if running:
        return _line("▶", running[-1], "so far")
    latest = view.latest
    if latest is None:
        return '<div class="gcylon-running">Nothing has run yet.</div>'
    return _line("✗ last:" if latest.error else "✓ last:", latest, "")


def _line(sign: str, op: Operation, so_far: str) -> str:
    done, rounds = int(op.progress.get("round") or 0), int(op.progress.get("rounds") or 0)
    peak, predicted, budget = (op.largest(f"{name}_bytes")[0] for name in ("measured_peak", "predicted_peak", "budget"))
    parts = [f"<b>{escape(op.name)}</b>", op.strategy, format_seconds(op.seconds) + f" {so_far}".rstrip()]
    parts += [f"round {done} of {rounds}"] if rounds else []
    parts += [escape(str(op.progress["phase"]))] if op.progress.get("phase") else []
    parts += [f"peak {readable(peak)} {so_far}".rstrip()] if peak else []
    parts += [f"predicted {readable(predicted)}"] if predicted else []
    parts += [f"{percent(peak / budget)} of its budget"] if peak and budget else []
    bar = f'<progress max="{rounds}" value="{done}" aria-label="rounds"></progress>' if rounds else ""
    return f'<div class="gcylon-running">{sign} {" · ".join(filter(None, parts))}{bar}</div>'
