"use strict";
for (const section of document.querySelectorAll("section.guest")) {
  const plots = [...section.querySelectorAll(".plot")].map((plot) => ({
    canvas: plot.querySelector(".canvas"),
    cursor: plot.querySelector(".cursor"),
    left: Number(plot.dataset.left),
    width: 100 - Number(plot.dataset.left) - Number(plot.dataset.right),
    span: Number(plot.dataset.span),
    unit: plot.dataset.unit,
    entries: [...plot.querySelectorAll(".entry")].map((entry) => ({
      output: entry.querySelector("output"),
      points: entry.dataset.points.split(" ").map((pair) => pair.split(",").map(Number)),
    })),
  }));
  const show = (at) => {
    for (const plot of plots) {
      plot.cursor.style.display = "block";
      plot.cursor.style.left = plot.left + (plot.width * at) / plot.span + "%";
      for (const entry of plot.entries) {
        let value;
        for (const [when, figure] of entry.points) if (when <= at) value = figure;
        entry.output.textContent =
          value === undefined ? "" : value.toLocaleString("en") + plot.unit;
      }
    }
  };
  const hide = () => {
    for (const plot of plots) {
      plot.cursor.style.display = "none";
      for (const entry of plot.entries) entry.output.textContent = "";
    }
  };
  for (const plot of plots) {
    plot.canvas.addEventListener("pointermove", (event) => {
      const box = plot.canvas.getBoundingClientRect();
      const part = (100 * (event.clientX - box.left)) / box.width;
      const at = ((part - plot.left) / plot.width) * plot.span;
      if (at >= 0 && at <= plot.span) show(at); else hide();
    });
    plot.canvas.addEventListener("pointerleave", hide);
  }
}
