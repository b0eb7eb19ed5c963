"""The style sheet of the controls: the cluster's tiles, the plan's row, the comparison."""

from __future__ import annotations

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
.gcylon-dashboard .jupyter-button { overflow: hidden; }
</style>
"""
