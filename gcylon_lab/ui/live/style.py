"""The style sheet of the dashboard's HTML: JupyterLab's own colours, so it follows light and dark."""

from __future__ import annotations

from ..figures.theme import DARK

CSS = """
<style>
.gcylon-dashboard { color: var(--jp-ui-font-color1, inherit); font-size: 13px; overflow: hidden; }
.gcylon-dashboard .gcylon-strip { line-height: 22px; }
.gcylon-dashboard .gcylon-chip { display: inline-block; margin: 2px 6px 2px 0; padding: 1px 8px; line-height: 20px;
  border: 1px solid var(--jp-border-color1, #999); border-radius: 4px; white-space: nowrap; box-sizing: border-box;
  min-width: 168px; }
.gcylon-dashboard .gcylon-chip i { display: inline-block; width: 10px; height: 10px; margin-right: 6px;
  border-radius: 2px; }
.gcylon-dashboard .gcylon-chip small { opacity: 0.7; }
.gcylon-dashboard .gcylon-plan { line-height: 19px; padding: 2px 0; }
.gcylon-dashboard .gcylon-plan small { opacity: 0.8; font-size: 12px; }
.gcylon-dashboard .gcylon-bar { position: relative; height: 8px; margin: 4px 0; max-width: 600px;
  background: var(--jp-layout-color2, rgba(128,128,128,0.2)); }
.gcylon-dashboard .gcylon-bar i { display: block; height: 100%; background: var(--jp-ui-font-color2, #777);
  opacity: 0.7; }
.gcylon-dashboard .gcylon-bar b { position: absolute; right: 0; top: -3px; height: 14px; border-right: 2px dashed; }
.gcylon-dashboard .gcylon-time .main-svg { overflow: visible !important; }
.gcylon-dashboard .cartesianlayer .x4y9 { display: none; }
.gcylon-dashboard .gcylon-scroll { overflow-x: auto; }
.gcylon-dashboard .widget-html { margin: 0 2px; } .gcylon-dashboard .widget-html-content { line-height: 20px; }
.gcylon-dashboard .gcylon-error { color: var(--jp-error-color0, #c62828); line-height: 18px; }
body[data-jp-theme-light="false"] .gcylon-dashboard .gcylon-error,
body.vscode-dark .gcylon-dashboard .gcylon-error { color: DARK_RED; }
@media (prefers-color-scheme: dark) {
  body:not([data-jp-theme-light]) .gcylon-dashboard .gcylon-error { color: DARK_RED; } }
.gcylon-dashboard .gcylon-note { opacity: 0.85; line-height: 18px; }
.gcylon-dashboard .gcylon-heading { font-weight: 600; }
.gcylon-dashboard pre.gcylon-code { white-space: pre-wrap; word-break: break-word; user-select: all; margin: 0;
  padding: 6px; font-size: 12px; background: var(--jp-layout-color2, rgba(128,128,128,0.15)); color: inherit; }
.gcylon-dashboard table.gcylon-numbers { border-collapse: collapse; font-size: 12px;
  font-variant-numeric: tabular-nums; }
.gcylon-dashboard table.gcylon-numbers caption { text-align: left; font-weight: 600; padding: 2px 0; color: inherit; }
.gcylon-dashboard table.gcylon-numbers th, .gcylon-dashboard table.gcylon-numbers td { padding: 1px 5px;
  text-align: right;
  border-bottom: 1px solid var(--jp-border-color2, rgba(128,128,128,0.35)); white-space: nowrap; }
.gcylon-dashboard table.gcylon-numbers th:first-child { text-align: left; }
.gcylon-dashboard table.gcylon-numbers thead th { white-space: normal; vertical-align: bottom;
  line-height: 16px; }
.gcylon-dashboard .widget-label, .gcylon-dashboard .widget-readout { color: var(--jp-ui-font-color1, inherit); }
</style>
""".replace("DARK_RED", DARK.budget)  # JupyterLab's own red for errors is too dark on its dark pages
