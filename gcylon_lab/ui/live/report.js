const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 760px)");

const draw = () => {
  const figure = figures[(dark.matches ? "dark" : "light") + (narrow.matches ? " narrow" : "")];
  document.getElementById("figure").style.height = `${figure.layout.height}px`;
  Plotly.react("figure", figure.data, figure.layout, { responsive: true, displayModeBar: false });
};

// Plotly's script is packed: a third of its size.
const unpack = async (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

unpack(document.getElementById("plotly").textContent).then((source) => {
  const element = document.createElement("script");
  element.textContent = source;
  document.head.append(element);
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  draw();
});
