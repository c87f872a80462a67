// One guest over time.
import { make, facts, tell } from "./dom.js";
import { getJson } from "./api.js";
import { size, rate, span } from "./format.js";
import { History } from "./history.js";
import { MEMORY, Plot } from "./plot.js";

/** Spans of time to choose from; the shortest is what the page has seen itself. */
const SPANS = [["live", 0], ["last hour", 3600], ["last day", 86400], ["last week", 604800]];

let chosen = 0;

export function guest(main, page, name) {
  const figures = make("section", { "aria-label": `Figures of ${name}` });
  const memory = make("div", { class: "plot", id: "memory" });
  const swap = make("div", { class: "plot", id: "swap" });
  const spans = make("select", {
    "aria-label": "Span of time", id: "span",
    onchange: (event) => { chosen = Number(event.target.value); load(); },
  }, ...SPANS.map(([text], nth) => make("option", { value: nth, selected: nth === chosen }, text)));
  main.append(
    make("h2", {}, name),
    make("div", { class: "tools" }, spans,
      make("a", { href: page.link("why", name) }, "why"),
      page.session.access === "write" ? make("button", { type: "button", onclick: () => page.bounds(name) }, "set bounds") : null),
    figures, make("h2", {}, "Memory"), memory, make("h2", {}, "Swap-in"), swap);
  let plots = [];
  let recorded = null;

  function plot() {
    plots.forEach((it) => it.end());
    plots = [
      new Plot(memory, `memory of ${name} over time`, MEMORY, false),
      new Plot(swap, `swap-in of ${name} over time`, [["swap-in", "swap"]], true),
    ];
  }

  async function load() {
    recorded = null;
    const [, seconds] = SPANS[chosen];
    if (seconds) {
      try {
        recorded = History.of(await getJson(`/page/past?span_s=${seconds}&guest=${encodeURIComponent(name)}`));
      } catch (error) {
        tell(error.message, true);
      }
    }
    draw();
  }

  function draw() {
    const history = recorded ?? page.history;
    const lines = history.guests.get(name);
    if (lines) {
      plots[0].show(history.at, [lines.allocation, lines.demand, lines.target]);
      plots[1].show(history.at, [lines.swapIn]);
    }
    const now = page.status?.guests.find((it) => it.guest === name);
    figures.replaceChildren(now ? about(now, page) : make("p", { class: "quiet" }, "this guest is not there now"));
  }

  plot();
  load();
  return {
    draw, guest: () => name, repaint: () => { plot(); draw(); }, end: () => plots.forEach((it) => it.end()),
    keys: { Enter: () => page.go("why", name), Escape: () => page.go("") },
  };
}

function about(guest, page) {
  return facts([
    ["state", guest.state.text],
    ["allocation", size(guest.allocation_bytes)],
    ["demand", guest.demand_bytes === null ? "?" : `${size(guest.demand_bytes)} (${guest.demand_confidence_percent}% sure)`],
    ["wanted", size(guest.wanted_bytes)],
    ["target", guest.target_bytes === null ? "none" : size(guest.target_bytes)],
    ["used", size(guest.used_bytes)],
    ["resident", size(guest.resident_bytes)],
    ["swap-in", rate(page.history.rate(guest.guest))],
    ["floor", size(guest.floor_bytes)],
    ["ceiling", size(guest.ceiling_bytes)],
    ["shares", String(guest.shares ?? "?")],
    ["statistics", guest.stats_age_ms === null ? "none" : `${span(guest.stats_age_ms)} old`],
    ["doing", guest.change?.text ?? "?"],
  ], `Figures of ${guest.guest}`);
}
