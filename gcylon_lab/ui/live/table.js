// Tables as HTML. A row whose first cell begins with the number of an operation can be chosen, and let go again.
const numberOf = (row) => Number(row.cells[0]?.textContent.match(/^#(\d+)/)?.[1] ?? -1);

function render({ model, el }) {
  el.classList.add("gcylon-scroll");
  const mark = () => {
    const chosen = model.get("chosen");
    for (const row of el.querySelectorAll("tbody tr")) {
      if (numberOf(row) < 0) continue;
      row.tabIndex = 0;
      row.setAttribute("aria-selected", String(numberOf(row) === chosen));
      row.title = numberOf(row) === chosen ? "Click to let go" : "Click: the panels of one operation show this one";
    }
  };
  const show = () => {
    const focused = [...el.querySelectorAll("tbody tr")].indexOf(document.activeElement);
    el.innerHTML = model.get("html");
    mark();
    if (focused >= 0) el.querySelectorAll("tbody tr")[focused]?.focus();
  };
  const choose = (event) => {
    if (event.type === "keydown" && event.key !== "Enter") return;
    const row = event.target.closest("tbody tr");
    const number = row ? numberOf(row) : -1;
    if (number < 0) return;
    model.set("chosen", number === model.get("chosen") ? -1 : number);
    model.save_changes();
  };
  model.on("change:html", show);
  model.on("change:chosen", mark);
  el.addEventListener("click", choose);
  el.addEventListener("keydown", choose);
  show();
  return () => { model.off("change:html", show); model.off("change:chosen", mark); };
}
export default { render };
