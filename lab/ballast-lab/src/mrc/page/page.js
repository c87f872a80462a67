"use strict";
for (const section of document.querySelectorAll("section.curves")) {
  const bytes = Number(section.dataset.pageBytes || 0);
  const size = (pages) => {
    if (!bytes) return Math.floor(pages).toLocaleString("en") + " pages";
    let value = Math.floor(pages) * bytes, unit = 0;
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit += 1; }
    return Number(value.toFixed(1)) + units[unit];
  };
  const percent = (ratio) => Number((100 * ratio).toPrecision(3)) + " %";
  const plots = [...section.querySelectorAll(".plot")].map((plot) => ({
    canvas: plot.querySelector(".canvas"),
    cursor: plot.querySelector(".cursor"),
    at: plot.querySelector(".at"),
    left: Number(plot.dataset.left),
    width: 100 - Number(plot.dataset.left) - Number(plot.dataset.right),
    entries: [...plot.querySelectorAll(".entry")].map((entry) => ({
      output: entry.querySelector("output"),
      points: entry.dataset.points.split(" ").filter(Boolean)
        .map((pair) => pair.split(",").map(Number)),
    })),
  })).filter((plot) => plot.canvas);
  const axis = (plot) => {
    const drawn = [...plot.canvas.querySelectorAll(".drawn")]
      .find((one) => getComputedStyle(one).display !== "none");
    const from = Number(drawn.dataset.from), to = Number(drawn.dataset.to);
    return drawn.dataset.scale === "log"
      ? { value: (place) => from * (to / from) ** place,
          place: (value) => Math.log(value / from) / Math.log(to / from) }
      : { value: (place) => from + place * (to - from),
          place: (value) => (value - from) / (to - from) };
  };
  const show = (pages) => {
    for (const plot of plots) {
      const place = axis(plot).place(pages);
      plot.cursor.style.display = place >= 0 && place <= 1 ? "block" : "none";
      plot.cursor.style.left = plot.left + plot.width * place + "%";
      plot.at.textContent = "at " + size(pages);
      for (const entry of plot.entries) {
        let ratio;
        for (const [from, value] of entry.points) if (from <= pages) ratio = value;
        entry.output.textContent = ratio === undefined ? "" : percent(ratio);
      }
    }
  };
  const hide = () => {
    for (const plot of plots) {
      plot.cursor.style.display = "none";
      plot.at.textContent = "";
      for (const entry of plot.entries) entry.output.textContent = "";
    }
  };
  for (const plot of plots) {
    plot.canvas.addEventListener("pointermove", (event) => {
      const box = plot.canvas.getBoundingClientRect();
      const part = (100 * (event.clientX - box.left)) / box.width;
      const place = (part - plot.left) / plot.width;
      if (place >= 0 && place <= 1) show(axis(plot).value(place)); else hide();
    });
    plot.canvas.addEventListener("pointerleave", hide);
  }
}
