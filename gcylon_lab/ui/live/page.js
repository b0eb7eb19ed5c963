const isDark = () => {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.classList.contains("vscode-dark")) return true;
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
};

// More of the width than this concerns nobody.
const STEP_PX = 20;

// What a control is called, for those who do not see what stands beside it.
const nameControls = (root) => {
  for (const control of root.querySelectorAll("input, select, textarea, [role=slider]")) {
    const widget = control.closest(".widget-inline-hbox, .jupyter-widgets:not(.widget-container)");
    const titled = [widget, ...(widget?.querySelectorAll("[title]") || [])].find((one) => one?.title);
    const beside = [widget?.querySelector("label"), widget, widget?.previousElementSibling];
    const texts = beside.map((one) => (one?.innerText || "").replace(/\u200b/g, "").trim());
    const name = texts[0] || titled?.title || (control.type === "checkbox" ? texts[1] : texts[2]);
    if (name && control.getAttribute("aria-label") !== name) control.setAttribute("aria-label", name);
  }
};

// The views of this page that are on the screen, and those with a pointer at work; the kernel hears of them together.
const seen = new Set(), used = new Set();

function render({ model, el }) {
  el.style.display = "none";
  const me = {}, stops = [];
  const set = (name, value) => {
    if (model.get(name) !== value) { model.set(name, value); model.save_changes(); }
  };
  const listen = (target, kind, handler) => {
    target.addEventListener(kind, handler);
    stops.push(() => target.removeEventListener(kind, handler));
  };

  // Messages are taken in order: whoever answers a tick has drawn what was sent before it.
  const answer = () => set("tock", model.get("tick"));
  model.on("change:tick", answer);
  stops.push(() => model.off("change:tick", answer));
  answer();

  const mark = (views, name, is) => {
    if (is) views.add(me); else views.delete(me);
    set(name, views.size > 0);
  };
  // Another page may have said that nobody looks, and know of none but its own views.
  const stillSeen = () => { if (seen.size) set("visible", true); };
  model.on("change:visible", stillSeen);
  stops.push(() => model.off("change:visible", stillSeen));
  // A page that went under a pressed pointer could not say so.
  mark(used, "busy", false);

  const theme = () => set("theme", isDark() ? "dark" : "light");
  const themes = new MutationObserver(theme);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  stops.push(() => themes.disconnect());
  listen(window.matchMedia("(prefers-color-scheme: dark)"), "change", theme);
  theme();

  // The element is put into the page after render returns.
  const started = setTimeout(() => {
    const root = el.closest(".gcylon-dashboard") || el.parentElement;
    if (!root) return;
    nameControls(root);
    let naming = null;
    const changed = new MutationObserver(() => { naming ??= setTimeout(() => { naming = null; nameControls(root); }, 500); });
    changed.observe(root, { childList: true, subtree: true });
    const sizes = new ResizeObserver(() => { set("width", Math.floor(root.clientWidth / STEP_PX) * STEP_PX || model.get("width")); });
    sizes.observe(root);
    stops.push(() => { changed.disconnect(); sizes.disconnect(); clearTimeout(naming); });
    let onScreen = true;
    const look = () => mark(seen, "visible", onScreen && !document.hidden);
    const screen = new IntersectionObserver((entries) => {
      onScreen = entries[entries.length - 1].isIntersecting;
      look();
    });
    screen.observe(root);
    stops.push(() => screen.disconnect());
    listen(document, "visibilitychange", look);

    // A plot under a moving or pressed pointer is in use: it is not redrawn then.
    let pressed = false, rest = null;
    const free = () => { clearTimeout(rest); if (!pressed) mark(used, "busy", false); };
    const use = (event) => {
      if (!event.target.closest || !event.target.closest(".js-plotly-plot")) { free(); return; }
      mark(used, "busy", true);
      clearTimeout(rest);
      rest = setTimeout(free, 2000);
    };
    listen(root, "pointermove", use);
    listen(root, "pointerleave", free);

    // Plots that share the time axis show the same instant: the pointer over one of them is told to the others.
    let told = false;
    const hover = (event) => {
      const over = event.target.closest?.(".nsewdrag")?.closest(".gcylon-time");
      if (pressed || !(over || told)) return;
      told = !!over;
      root.querySelectorAll(".gcylon-time").forEach((plot) => {
        const area = plot !== over && plot.querySelector(".nsewdrag");
        if (!area) return;
        const box = area.getBoundingClientRect();
        const at = { clientX: event.clientX, clientY: box.top + box.height / 2 };
        area.dispatchEvent(new MouseEvent(told ? "mousemove" : "mouseout", at));
      });
    };
    listen(root, "pointermove", hover);
    listen(root, "pointerleave", hover);
    root.addEventListener("pointerdown", (e) => { pressed = true; use(e); }, true);
    listen(window, "pointerup", () => { pressed = false; clearTimeout(rest); rest = setTimeout(free, 1000); });
    stops.push(() => clearTimeout(rest));
  }, 0);

  return () => {
    clearTimeout(started);
    stops.forEach((stop) => stop());
    // Where the kernel has closed it, or a closed notebook has let go of its kernel, there is nobody left to tell.
    const kernel = model.widget_manager?.kernel;
    if (model.get("ended") || kernel === null || kernel?.isDisposed) return;
    mark(used, "busy", false);
    mark(seen, "visible", false);
  };
}
export default { render };
