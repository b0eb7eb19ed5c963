const isTimeAxis = (key) => /^xaxis4?\.(range|autorange)/.test(key);
const token = () => Math.random().toString(36).slice(2);
// A kernel that runs a cell may answer late, and a saved page has none.
const PATIENCE_MS = 1500;

// One for all figures of the page: to read it takes a page a second.
function loaded(script) {
  const known = (globalThis.gcylonPlotly ??= new Map());
  if (!known.has(script)) {
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const reading = import(url).finally(() => URL.revokeObjectURL(url));
    known.set(script, reading.then((plotly) => {
      // After every update these would send all that plotly added to the figure; nobody asks for that.
      Object.assign(plotly.FigureView?.prototype || {}, { _sendTraceDeltas() {}, _sendLayoutDelta() {} });
      return plotly.default;
    }));
  }
  return known.get(script);
}

// Put around the model that plotly's script works with, one for each view.
function held(model) {
  // A view that is opened again must not number as it did before.
  const page = token(), stops = [], handlers = {};
  let said = "", count = 0, pressed = false, drawn = false, plot = null, fitted = null;
  const handMoved = (moved) => {
    const keys = Object.keys(moved).filter(isTimeAxis);
    if (!keys.length) return;
    said = `${page} ${++count}`;
    const range = [...(plot?._fullLayout?.xaxis?.range || [])];
    model.set("hand", { said, zoomed: moved["xaxis.autorange"] !== true, range });
  };
  const withoutTimeAxis = (update) => {
    const rest = Object.entries(update.layout_data || {}).filter(([key]) => !isTimeAxis(key));
    return { ...update, layout_data: Object.fromEntries(rest) };
  };
  // Plotly fits a figure to the window alone, and to no window once its height was set.
  const fit = () => {
    const width = plot.clientWidth;
    if (!width || !plot._fullLayout || width === plot._fullLayout.width) return;
    const edit = model.get("_last_layout_edit_id");
    fitted = { relayout_data: { width }, source_view_id: null, layout_edit_id: edit };
    handlers["change:_py2js_relayout"]?.();
    fitted = null;
  };
  const on = (event, handler) => {
    handlers[event] = handler;
    model.on(event, handler);
    stops.push(() => model.off(event, handler));
  };
  on("change:heard", () => { if (model.get("heard") === said) said = ""; });
  return {
    on,
    save_changes: () => model.save_changes(),
    set(name, value) {
      // How wide this view is concerns no other.
      if (name === "_js2py_relayout" && "width" in (value?.relayout_data || {})) return;
      if (name === "_js2py_relayout" && value) handMoved(value.relayout_data);
      model.set(name, value);
    },
    get(name) {
      // It is whole when it is drawn; plotly copies it with every update, and needs it no more.
      if (name === "_widget_data" && drawn) return [];
      if (name === "_py2js_relayout" && fitted) return fitted;
      const value = model.get(name);
      return name === "_py2js_update" && value && (said || pressed) ? withoutTimeAxis(value) : value;
    },
    // A stretch being drawn is in the axis' units: they stay until it is done.
    watch(el) {
      const press = () => { pressed = true; };
      const release = () => { pressed = false; };
      el.addEventListener("pointerdown", press, true);
      stops.push(() => el.removeEventListener("pointerdown", press, true));
      for (const kind of ["pointerup", "pointercancel"]) {
        window.addEventListener(kind, release);
        stops.push(() => window.removeEventListener(kind, release));
      }
      drawn = true;
      plot = el;
      const sizes = new ResizeObserver(fit);
      sizes.observe(el);
      stops.push(() => sizes.disconnect());
    },
    end() { stops.forEach((stop) => stop()); },
  };
}

function draw(plotly, model, el) {
  const mine = held(model), figure = plotly();
  figure.initialize({ model: mine });
  const remove = figure.render({ model: mine, el });
  mine.watch(el);
  return () => { mine.end(); remove(); };
}

export default {
  async render({ model, el }) {
    const lender = model.get("lender");
    const plotly = await loaded((lender ? await model.widget_manager.get_model(lender) : model).get("script"));
    const asked = token();
    let end = () => {};
    const drawAgain = () => { end(); end = draw(plotly, model, el); };
    const patience = setTimeout(drawAgain, PATIENCE_MS);
    // Drawn at once: the next update may be there already.
    const answered = () => {
      if (model.get("answered") !== asked) return;
      stop();
      drawAgain();
    };
    const stop = () => { clearTimeout(patience); model.off("change:answered", answered); };
    model.on("change:answered", answered);
    model.set("asked", asked);
    model.save_changes();
    return () => { stop(); end(); };
  },
};
