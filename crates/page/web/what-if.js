// Another policy on what was recorded, by replay: the chosen one beside the present one.
import { facts, make } from "./dom.js";
import { getJson } from "./api.js";
import { moment, size, span } from "./format.js";
import { Plot } from "./plot.js";

/** Spans of time to choose from, in seconds. */
const SPANS = [["the last hour", 3600], ["the last day", 86400], ["the last week", 604800]];

// What an operator chose and saw stays while the page is open.
const chosen = { policy: null, since: 86400, compared: null };

export function whatIf(main, page) {
  const option = (value, text, attributes) => make("option", { value, ...attributes }, text);
  const policies = make("select", { id: "policy", onchange: (event) => { chosen.policy = event.target.value; tellRule(); } });
  const spans = make("select", { id: "since", onchange: (event) => { chosen.since = Number(event.target.value); } },
    ...SPANS.map(([text, seconds]) => option(seconds, text, { selected: seconds === chosen.since })));
  const start = make("button", { type: "button", id: "compare", onclick: () => (running ? stop() : compare()) }, "compare");
  const rule = make("p", { class: "quiet" });
  const progress = make("span", { role: "status" });
  const elapsed = make("span", { "aria-hidden": "true" });
  const trouble = make("p", { id: "trouble", class: "trouble", role: "alert" });
  const result = make("section", { id: "compared", "aria-label": "Comparison" });
  main.append(make("h2", {}, "Another policy on what was recorded"),
    make("div", { class: "tools" },
      make("label", {}, "policy ", policies), make("label", {}, "during ", spans), start),
    rule, make("p", { id: "progress" }, progress, elapsed), trouble, result);
  let known = [];
  let plot = null;
  /** Ends the replay that runs; null: none does. */
  let running = null;

  const present = () => page.status?.daemon?.policy ?? null;
  const named = (name) => known.find((it) => it.policy === name);

  function tellRule() {
    const it = named(chosen.policy);
    rule.textContent = it ? it.rule : "";
  }

  async function load() {
    try {
      known = await getJson("/page/policies");
    } catch (error) {
      trouble.textContent = error.message;
      return;
    }
    chosen.policy ??= known.find((it) => !it.not_replayable && it.policy !== present())?.policy;
    policies.replaceChildren(...known.map((it) => option(it.policy,
      it.not_replayable ? `${it.policy} (cannot be replayed)` : it.policy,
      { disabled: Boolean(it.not_replayable), selected: it.policy === chosen.policy })));
    tellRule();
  }

  async function compare() {
    // The present policy comes with the first tick.
    if (running || !chosen.policy || !present()) return;
    const { signal } = running = new AbortController();
    const { policy, since } = chosen;
    chosen.compared = null;
    show();
    trouble.textContent = "";
    start.textContent = "stop";
    const begun = Date.now();
    const timer = setInterval(() => { elapsed.textContent = `, ${span(Date.now() - begun)}`; }, 500);
    const [during] = SPANS.find(([, seconds]) => seconds === since);
    const ask = async (under) => {
      progress.textContent = `running: ${during} under ${under}`;
      const path = `/v1/what-if?policy=${encodeURIComponent(under)}&since_s=${since}`;
      return (await getJson(path, { signal })).advice;
    };
    try {
      const compared = { since, present: present(), other: await ask(policy), now: null, not: null };
      await beside(compared, ask);
      signal.throwIfAborted();
      chosen.compared = compared;
      show();
    } catch (error) {
      if (!signal.aborted) trouble.textContent = error.message;
    }
    clearInterval(timer);
    running = null;
    start.textContent = "compare";
    progress.textContent = elapsed.textContent = "";
  }

  /** Adds what the present policy would have done, or why that is not known. */
  async function beside(compared, ask) {
    if (compared.present === compared.other.policy) {
      compared.now = compared.other;
      return;
    }
    compared.not = named(compared.present)?.not_replayable ?? null;
    if (compared.not) return;
    try {
      compared.now = await ask(compared.present);
    } catch (error) {
      if (running.signal.aborted) throw error;
      compared.not = error.message;
    }
  }

  function stop() {
    running?.abort();
  }

  /** Shows the comparison, if there is one. */
  function show() {
    plot?.end();
    plot = null;
    result.replaceChildren();
    if (!chosen.compared) return;
    const place = make("div", { class: "plot", id: "course" });
    result.append(...told(chosen.compared, place));
    const { course, policy } = chosen.compared.other;
    plot = new Plot(place, `memory of all guests over time, as it was and under ${policy}`,
      [["held", "allocation"], [`under ${policy}`, "target"], ["needed", "demand"]], false);
    plot.show(course.map((it) => it.at_unix_ms / 1000),
      ["held_bytes", "imagined_bytes", "needed_bytes"].map((name) => course.map((it) => it[name])));
  }

  load();
  show();
  return {
    draw: () => {}, repaint: show, end: () => { stop(); plot?.end(); },
    keys: { Enter: compare, Escape: () => { if (running) stop(); else page.go(""); } },
  };
}

/** What is compared, a figure of each advice. */
const ROWS = [
  ["could be given back, half of the time", (it) => size(it.returnable.p50_bytes)],
  ["could be given back, 95 % of the time", (it) => size(it.returnable.p95_bytes)],
  ["could be given back, worst hour", (it) => `${size(it.returnable.worst_hour_bytes)} (${moment(it.returnable.worst_hour_unix_ms)})`],
  ["guests hold, on average", (it) => size(it.imagined_mean_bytes), (it) => size(it.held_mean_bytes)],
  ["read back from swap", (it) => size(it.imagined_swap_in_bytes), (it) => size(it.swap_in_bytes)],
  ["swap-ins avoided", (it) => size(it.swap_in_avoided_bytes)],
  ["guests that may need more", (it) => `${it.guests_hiding_need}`],
  ["confidence", (it) => `${it.confidence.percent} %`],
];

/** A comparison in elements; the plot comes into `place`. */
function told({ since, present, other, now, not }, place) {
  const columns = [
    ["RECORDED", (row) => row[2]?.(other) ?? "–"],
    ...(now && now !== other ? [[`${now.policy} (present)`, (row) => row[1](now)]] : []),
    [now === other ? `${other.policy} (present)` : other.policy, (row) => row[1](other)],
  ];
  const head = (text) => make("th", { scope: "col", class: "figure" }, text);
  const table = make("table", { id: "figures" },
    make("caption", {}, `Replayed: ${other.window.ticks} ticks, ${moment(other.window.first_unix_ms)} to ${moment(other.window.last_unix_ms)}. Simulated, not measured.`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, ""), ...columns.map(([name]) => head(name)))),
    make("tbody", {}, ...ROWS.map((row) => make("tr", {}, make("th", { scope: "row" }, row[0]),
      ...columns.map(([name, figure]) => make("td", { class: "figure", "data-name": name }, figure(row)))))));
  const { confidence } = other;
  const findings = other.guests.flatMap((guest) => guest.findings.map((finding) => ({ guest: guest.guest, ...finding })));
  return [
    table,
    not ? make("p", { class: "quiet" }, `Nothing of the present policy, ${present}: ${not}`) : "",
    facts([
      ["confidence", `${confidence.percent} %: ${confidence.weakest}`],
      ["coverage", `${confidence.coverage_percent} %`],
      ["freshness", `${confidence.freshness_percent} %`],
      ["source", `${confidence.source_percent} %`],
      ["visibility", `${confidence.visibility_percent} %`],
    ], "Confidence"),
    make("h2", {}, "Memory of all guests"), place,
    make("h2", {}, "What to do"),
    findings.length
      ? make("table", { id: "findings" }, make("tbody", {}, ...findings.map(({ guest, text, remedy }) => make("tr", {},
        make("th", { scope: "row" }, guest), make("td", { class: "wide" }, text, make("br"), make("code", {}, remedy))))))
      : make("p", { class: "quiet" }, "nothing: no guest is too big, too small or beyond reach"),
    make("h2", {}, "Assumptions"),
    make("ul", { id: "assumptions" }, ...other.assumptions.map((text) => make("li", {}, text))),
    make("p", { class: "quiet" }, "This is the same as: ", make("code", {}, `ballast advise --since ${since / 3600}h --policy ${other.policy}`)),
  ];
}
