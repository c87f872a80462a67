// The fleet that this host is in: who leads, how its hosts are, which guests are to be elsewhere.
import { make } from "./dom.js";
import { getJson } from "./api.js";
import { size } from "./format.js";

/** Time between two questions: as long as a host's record is. */
const EVERY_MS = 10_000;

// What was seen last is there at once when the view is opened again.
let seen = null;

export function fleet(main, page) {
  const trouble = make("p", { id: "trouble", class: "trouble", role: "alert" });
  const place = make("section", { id: "fleet", "aria-label": "Fleet" });
  main.append(make("h2", {}, "Fleet"), trouble, place);
  let timer = null;
  let ended = false;

  async function ask() {
    try {
      seen = await getJson("/v1/fleet");
      trouble.textContent = "";
    } catch (error) {
      trouble.textContent = error.message;
    }
    if (ended) return;
    show();
    timer = setTimeout(ask, EVERY_MS);
  }

  function show() {
    if (!seen) return;
    place.replaceChildren(...(seen.status ? told(seen.status, seen.plan) : [make("p", {}, seen.hint)]));
  }

  show();
  ask();
  return {
    draw: () => {},
    end: () => { ended = true; clearTimeout(timer); },
    keys: { Escape: () => page.go("") },
  };
}

/** A fleet in elements. */
function told(status, shown) {
  const plan = shown?.plan;
  const led = status.leader ? `led by ${status.leader} (revision ${status.leader_revision})` : "without a leader";
  const doing = status.mode === "move" ? "guests are moved by plan" : "moves are named, and nothing is done";
  const texts = (list) => (list ?? []).map(({ guest, host, text }) => {
    const name = guest ?? host ?? "";
    return [name, text.startsWith(`${name} `) ? text.slice(name.length + 1) : text];
  });
  const left = status.hosts.filter((host) => host.left_out).map((host) => [host.host, host.left_out]);
  return [
    make("p", { id: "led" }, `${status.cluster}, ${led}; mode ${status.mode}: ${doing}`),
    status.paused_by ? make("p", { class: "trouble" }, `paused from ${status.paused_by}: nothing is planned`) : "",
    hosts(status.hosts.filter((host) => !host.left_out)),
    ...section("under-way", "Moves under way", texts(status.moves)),
    shown?.void ? make("p", { class: "quiet" }, `the plan is void: ${shown.void}`) : "",
    ...section("planned", "Planned", texts(plan?.migrations)),
    ...section("waiting", "Planned for later", texts(plan?.waiting)),
    ...section("unmet", "Unmet", texts(plan?.unmet)),
    ...section("left-out", "Left out", left),
    ...section("absent", "To be drained, and not registered", status.draining_absent.map((host) => [host, ""])),
    make("h2", {}, "To act"),
    make("ul", { id: "commands" }, ...["explain GUEST", "drain HOST", status.paused_by ? "resume" : "pause"]
      .map((what) => make("li", {}, make("code", {}, `ballast fleet ${what}`)))),
  ];
}

/** What a host's bars show. */
const BARS = [["FLOORS", "floors_bytes"], ["COMMITTED", "committed_bytes"], ["DEMAND", "demand_bytes"]];

function hosts(list) {
  const most = Math.max(1, ...list.flatMap((host) => [host.budget_bytes, host.free_bytes, ...BARS.map(([, key]) => host[key])]));
  const figure = (name, text) => make("td", { class: "figure", "data-name": name }, text);
  const bar = (name, host, bytes, high) => make("td", { "data-name": name },
    make("meter", { min: 0, max: most, high: Math.min(most, high), optimum: 0, value: bytes,
      "aria-label": `${name.toLowerCase()} of ${host.host}` }), ` ${size(bytes)}`);
  const head = ["HOST", "GUESTS", "BUDGET", ...BARS.map(([name]) => name), "FREE", "STATE"];
  const isFigure = (name) => ["GUESTS", "BUDGET"].includes(name);
  return make("table", { id: "hosts" },
    make("caption", {}, "Hosts; all bars have one scale, and change colour beyond the budget"),
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col", class: isFigure(name) ? "figure" : undefined }, name)))),
    make("tbody", {}, ...list.map((host) => make("tr", { "data-host": host.host },
      make("th", { scope: "row" }, host.host),
      figure("GUESTS", `${host.guests}`), figure("BUDGET", size(host.budget_bytes)),
      ...BARS.map(([name, key]) => bar(name, host, host[key], host.budget_bytes)),
      bar("FREE", host, host.free_bytes, most),
      make("td", { "data-name": "STATE", class: host.short_of_objectives_bytes ? "trouble" : undefined }, state(host))))));
}

function state(host) {
  if (host.draining) return "draining";
  if (host.short_bytes) return `${size(host.short_bytes)} short of floors`;
  return host.short_of_objectives_bytes ? `${size(host.short_of_objectives_bytes)} short of objectives` : "ok";
}

/** A title and its rows; nothing where there are none. */
function section(id, title, rows) {
  if (!rows.length) return [];
  return [make("h2", {}, title), make("table", { id }, make("tbody", {}, ...rows.map(([name, text]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "wide" }, text)))))];
}
