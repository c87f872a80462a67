// The host, and all guests with their last ticks.
import { make, facts } from "./dom.js";
import { size, rate, span, percent } from "./format.js";
import { Spark } from "./plot.js";

/** Most guests with a plot; the filter finds the others. */
const SPARKS_MAX = 60;

const COLUMNS = [
  { name: "GUEST", of: (guest) => guest.guest },
  { name: "ALLOC", of: (guest) => guest.allocation_bytes },
  { name: "DEMAND", of: (guest) => guest.demand_bytes },
  { name: "TARGET", of: (guest) => guest.target_bytes },
  { name: "SWAP-IN", of: (guest, history) => history.rate(guest.guest) },
  { name: "DOING", of: (guest, history) => doing(guest, history) },
];

/** What is done about a guest: 0 trouble, 1 movement, 2 rest, as in `ballast top`. */
function doing(guest, history) {
  if (!guest.change) return 0;
  if (guest.change.code !== "hold") return 1;
  const why = guest.change.why?.code ?? "";
  const complies = !guest.compliance || guest.compliance.code === "compliant";
  if (["dead-band", "on-target"].includes(why)) return complies && !history.rate(guest.guest) ? 2 : 1;
  return ["observing", "paused"].includes(why) ? 1 : 0;
}

// What an operator chose stays while the page is open.
const showing = { column: 0, turned: false, folded: false, filter: "", selected: null };

export function overview(main, page) {
  const host = make("section", { "aria-label": "Host", id: "host" });
  const filter = make("input", {
    id: "filter", type: "search", placeholder: "filter ( / )", "aria-label": "Filter by name",
    value: showing.filter, oninput: (event) => { showing.filter = event.target.value; draw(); },
  });
  const fold = make("input", {
    id: "fold", type: "checkbox", checked: showing.folded,
    onchange: (event) => { showing.folded = event.target.checked; draw(); },
  });
  const rest = make("span", { class: "quiet" });
  const head = make("tr");
  const body = make("tbody");
  const table = make("table", { id: "guests" }, make("caption", {}, "Guests"), make("thead", {}, head), body);
  main.append(host,
    make("div", { class: "tools" }, filter, make("label", {}, fold, " fold guests at rest"), rest), table);
  let sparks = new Map();
  let drawn = [];

  function draw() {
    if (!page.status) return;
    drawHost(host, page.status);
    drawHead();
    drawGuests();
  }

  function drawHead() {
    const name = ({ name: text }, nth) => {
      const sorted = nth === showing.column;
      const mark = sorted ? (isDescending() ? "▼" : "▲") : "";
      const by = make("button", { type: "button", onclick: () => sort(nth) }, text + mark);
      const order = sorted ? (isDescending() ? "descending" : "ascending") : undefined;
      return make("th", { scope: "col", "aria-sort": order, class: nth && nth < 5 ? "figure" : undefined }, by);
    };
    const plain = (text) => make("th", { scope: "col" }, text);
    const focused = head.contains(document.activeElement);
    if (focused) return;
    head.replaceChildren(...COLUMNS.slice(0, 5).map(name), plain("BOUNDS"), plain("LAST TICKS"), name(COLUMNS[5], 5));
  }

  const isDescending = () => (showing.column > 0 && showing.column < 5) !== showing.turned;

  function sort(nth) {
    showing.turned = nth === showing.column ? !showing.turned : false;
    showing.column = (nth + COLUMNS.length) % COLUMNS.length;
    document.activeElement?.blur?.();
    draw();
  }

  function rows() {
    const wanted = showing.filter.toLowerCase();
    const { of } = COLUMNS[showing.column];
    const sign = isDescending() ? -1 : 1;
    const found = page.status.guests.filter((guest) => guest.guest.toLowerCase().includes(wanted));
    const shown = showing.folded ? found.filter((guest) => doing(guest, page.history) !== 2) : found;
    rest.textContent = found.length > shown.length ? `${found.length - shown.length} at rest` : "";
    const known = (value) => value !== null && value !== undefined;
    return shown.sort((a, b) => {
      const [one, other] = [of(a, page.history), of(b, page.history)];
      // Unknown figures come last whichever way is sorted.
      if (!known(one) || !known(other)) return Number(known(other)) - Number(known(one));
      return sign * (one < other ? -1 : one > other ? 1 : 0);
    });
  }

  function drawGuests() {
    const guests = rows();
    drawn = guests.map((guest) => guest.guest);
    const kept = new Map();
    const made = guests.map((guest, nth) => {
      const row = sparks.get(guest.guest) ?? newRow(guest.guest, nth < SPARKS_MAX);
      sparks.delete(guest.guest);
      kept.set(guest.guest, row);
      fill(row, guest);
      return row.element;
    });
    for (const row of sparks.values()) row.spark?.end();
    sparks = kept;
    if (!made.length) {
      const none = page.status.guests.length ? "no guest's name contains the filter's text"
        : "no guest was found: 'ballast doctor host' says where Ballast looks";
      made.push(make("tr", {}, make("td", { colspan: 8, class: "quiet wide" }, none)));
    }
    // Rows that are in their place stay there, so that focus and plots do, too.
    made.forEach((row, nth) => { if (body.children[nth] !== row) body.insertBefore(row, body.children[nth] ?? null); });
    while (body.children.length > made.length) body.lastChild.remove();
  }

  function newRow(name, hasSpark) {
    const cell = (text, kind) => make("td", { "data-name": text, class: kind });
    const cells = ["ALLOC", "DEMAND", "TARGET", "SWAP-IN"].map((text) => cell(text, "figure"));
    const bounds = cell("BOUNDS", "bounds");
    const place = make("div", { class: "spark", role: "img" });
    const told = make("td", { class: "wide doing" });
    const element = make("tr", { "data-guest": name, onclick: () => select(name) },
      make("th", { scope: "row" }, make("a", { href: page.link("guest", name) }, name)),
      ...cells, bounds, make("td", { class: "wide" }, place), told);
    return { element, cells, bounds, told, place, spark: hasSpark ? new Spark(place) : null };
  }

  function fill(row, guest) {
    const figures = [size(guest.allocation_bytes), size(guest.demand_bytes),
      guest.target_bytes === null ? "none" : size(guest.target_bytes), rate(page.history.rate(guest.guest))];
    row.cells.forEach((cell, nth) => { cell.textContent = figures[nth]; });
    row.bounds.textContent = guest.floor_bytes === null ? "?" : `${size(guest.floor_bytes)}–${size(guest.ceiling_bytes)}`;
    row.told.textContent = guest.change?.text ?? guest.state.text;
    row.told.className = `wide doing ${["trouble", guest.change?.code ?? "", "quiet"][doing(guest, page.history)]}`;
    row.element.setAttribute("aria-selected", String(guest.guest === showing.selected));
    const lines = page.history.guests.get(guest.guest);
    if (row.spark && lines) {
      row.spark.show(page.history, lines, `${guest.guest} holds ${figures[0]} and needs ${figures[1]}`);
    }
  }

  function select(name) {
    showing.selected = name;
    for (const row of body.children) row.setAttribute("aria-selected", String(row.dataset.guest === name));
    body.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  const step = (by) => {
    const at = drawn.indexOf(showing.selected);
    const to = Math.max(0, Math.min(drawn.length - 1, at < 0 ? 0 : at + by));
    if (drawn.length) select(drawn[to]);
  };
  draw();
  return {
    draw,
    guest: () => showing.selected,
    repaint: () => { for (const row of sparks.values()) row.spark?.end(); sparks = new Map(); body.replaceChildren(); draw(); },
    end: () => { for (const row of sparks.values()) row.spark?.end(); },
    keys: {
      j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
      g: () => step(-Infinity), G: () => step(Infinity),
      Enter: () => { if (showing.selected) page.go("why", showing.selected); },
      "/": () => filter.focus(),
      Escape: () => { showing.filter = ""; filter.value = ""; draw(); },
      "<": () => sort(showing.column - 1), ">": () => sort((showing.column + 1) % COLUMNS.length),
      r: () => { showing.turned = !showing.turned; draw(); },
      f: () => { showing.folded = !showing.folded; fold.checked = showing.folded; draw(); },
    },
  };
}

function drawHost(host, status) {
  const { daemon, tick, budget } = status;
  const allocated = status.guests.reduce((sum, guest) => sum + (guest.allocation_bytes ?? 0), 0);
  const still = [tick.observing && "OBSERVING", tick.paused && "PAUSED"].filter(Boolean).join(" ");
  const used = make("span", {}, size(budget.committed_bytes), " ", make("meter", {
    min: 0, max: Math.max(budget.distributable_bytes, 1), value: budget.committed_bytes,
    "aria-label": "committed of the budget",
  }));
  const reserved = status.reservations.reduce((sum, it) => sum + it.size_bytes, 0);
  const { host: memory } = status;
  const swap = memory.swap_total_bytes === 0 ? "none"
    : `${size(memory.swap_free_bytes)} of ${size(memory.swap_total_bytes)} free`;
  host.replaceChildren(
    facts([
      ["policy", daemon?.policy ?? tick.policy],
      ["mode", still || "acting"],
      ["tick", `${span(daemon?.tick_ms ?? 0)}, #${tick.generation}`],
      ["budget", size(budget.distributable_bytes)],
      ["committed", used],
      ["allocated", size(allocated)],
      ["grantable", size(budget.grantable_bytes)],
      ...(reserved ? [["reserved", size(reserved)]] : []),
      ["host", `${size(memory.memory_available_bytes)} of ${size(memory.memory_total_bytes)} available`],
      ["reserve", size(daemon?.host_reserve_bytes)],
      ["swap", swap],
      ["pressure", `some ${percent(memory.pressure_some_basis_points)} full ${percent(memory.pressure_full_basis_points)}`],
    ], "Host"),
    ...warnings(status).map((text) => make("p", { class: "trouble" }, text)),
  );
}

/** What an operator should know, the gravest first. */
function warnings({ rung, daemon, notes }) {
  const told = [];
  if (rung.code !== "normal") told.push(rung.text);
  if (daemon?.journal_error) told.push(`the journal does not record: ${daemon.journal_error}`);
  if (daemon?.reload_error) told.push(`the last reload was refused: ${daemon.reload_error}`);
  if (daemon?.page_error) told.push(`the page is not served on its port: ${daemon.page_error}`);
  if (daemon?.guests_refused) told.push(`${daemon.guests_refused} guests are left out: raise the daemon's limit of open files`);
  if (daemon?.plans_refused) told.push(`${daemon.plans_refused} of ${daemon.ticks} plans were refused by the checker`);
  return told.concat(notes.map((note) => note.text));
}
