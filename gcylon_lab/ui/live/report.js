const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const draw = () => {
  const figure = figures[dark.matches ? "dark" : "light"];
  Plotly.react("figure", figure.data, figure.layout, { responsive: true, displayModeBar: false });
};
dark.addEventListener("change", draw);
draw();
