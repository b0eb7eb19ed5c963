"""The style sheet of the controls: the cluster's tiles, the plan's row, the comparison."""

from __future__ import annotations

from ..figures.theme import DARK

# The arrow of ipywidgets' dropdowns is black on every page.
_SVG = (
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath "
    f"fill='{DARK.text.replace('#', '%23')}' d='M5.2,5.9L9,9.7l3.8-3.8l1.2,1.2l-4.9,5l-4.9-5z'/%3E%3C/svg%3E"
)
_ARROW = f'--jp-widgets-dropdown-arrow: url("data:image/svg+xml,{_SVG}");'

CONTROLS_CSS = """
<style>
.gcylon-dashboard .gcylon-tiles { display: flex; flex-wrap: wrap; column-gap: 16px; }
.gcylon-dashboard .gcylon-tiles > div { display: flex; flex-wrap: wrap; align-items: center; line-height: 18px; }
.gcylon-dashboard .gcylon-tiles small { min-width: 30px; margin-right: 6px; opacity: 0.8; }
.gcylon-dashboard .gcylon-tile { display: inline-block; width: 42px; margin: 1px 3px 1px 0; text-align: center;
  border: 1px solid var(--jp-border-color1, #999); border-radius: 3px; font-size: 11px; box-sizing: border-box;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.gcylon-dashboard .gcylon-working { background: var(--jp-layout-color3, rgba(128,128,128,0.35)); }
.gcylon-dashboard .gcylon-said { line-height: 18px; padding: 0 2px; }
.gcylon-dashboard .gcylon-asks { border-left: 3px solid #C77700; padding-left: 8px; line-height: 19px; }
.gcylon-dashboard .gcylon-changes { opacity: 0.85; font-size: 12px; line-height: 17px; }
.gcylon-dashboard .gcylon-unit { opacity: 0.75; font-size: 12px; line-height: 16px; }
.gcylon-dashboard .gcylon-compared { container-type: inline-size; }
.gcylon-dashboard .gcylon-why { max-width: calc(100cqw - 150px); }
@container (max-width: 680px) {
  .gcylon-dashboard .gcylon-compared table.gcylon-numbers td { white-space: normal; padding: 1px 3px; } }
.gcylon-dashboard .jupyter-button { overflow: hidden; }
body[data-jp-theme-light="false"] .gcylon-dashboard, body.vscode-dark .gcylon-dashboard { DARK_ARROW }
@media (prefers-color-scheme: dark) { body:not([data-jp-theme-light]) .gcylon-dashboard { DARK_ARROW } }
</style>
""".replace("DARK_ARROW", _ARROW)
