// The page: who looks, what is shown, and the live events that all views draw from.
import { make, tell } from "./dom.js";
import { getJson, post, renew, session } from "./api.js";
import * as actions from "./actions.js";
import { History } from "./history.js";
import { overview } from "./overview.js";
import { guest } from "./guest.js";
import { why } from "./why.js";
import { events, note } from "./events.js";
import { whatIf } from "./what-if.js";
import { fleet } from "./fleet.js";
import { login } from "./login.js";

/** How long without a tick until the page says so. */
const SILENT_MS = 5000;
/** How long until a stream that was refused is tried again. */
const RETRY_MS = 5000;
/** What plots begin with. */
const PAST_S = 600;

const main = document.getElementById("main");
const VIEWS = { "": overview, guest, why, events, "what-if": whatIf, fleet };

const page = {
  status: null,
  history: new History(),
  get session() { return session; },
  link: (view, name) => (name === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(name)}`),
  go: (view, name) => { location.hash = page.link(view, name); },
  bounds: (name) => {
    const found = page.status?.guests.find((it) => it.guest === name);
    if (found) actions.bounds(found);
  },
};

let view = null;
let stream = null;
let seenAt = 0;

function show() {
  if (session.access === "none") return;
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  view?.end?.();
  main.replaceChildren();
  view = (VIEWS[name] ?? overview)(main, page, decodeURIComponent(rest.join("/")));
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function drawActions() {
  const place = document.getElementById("actions");
  const button = (id, text, act) => make("button", { id, type: "button", onclick: act }, text);
  const wanted = [];
  if (session.access === "write" && page.status) {
    const { paused, observing } = page.status.tick;
    wanted.push(button("pause", paused ? "resume" : "pause", () => actions.pause(page.status)),
      button("mode", observing ? "balance" : "observe", () => actions.mode(page.status)));
  }
  if (session.access === "read") wanted.push(make("span", { class: "quiet" }, "you can look, not act"));
  if (session.by_token && session.access !== "none") wanted.push(button("leave", "log out", leave));
  // What is there already keeps its focus.
  const text = (nodes) => [...nodes].map((node) => node.textContent).join();
  if (text(place.children) !== text(wanted)) place.replaceChildren(...wanted);
}

async function leave() {
  await post("/page/logout");
  location.reload();
}

function listen() {
  stream?.close();
  stream = new EventSource("/page/stream");
  stream.addEventListener("tick", (event) => {
    const before = page.status;
    page.status = JSON.parse(event.data);
    page.history.push(page.status);
    note(before, page.status);
    seenAt = Date.now();
    document.getElementById("connection").textContent = "";
    document.body.dataset.ticks = Number(document.body.dataset.ticks ?? 0) + 1;
    drawActions();
    view?.draw();
  });
  stream.addEventListener("error", () => {
    // It tries again by itself unless it was refused.
    if (stream.readyState === EventSource.CLOSED) setTimeout(begin, RETRY_MS);
  });
}

setInterval(() => {
  if (session.access === "none" || Date.now() - seenAt < SILENT_MS) return;
  document.getElementById("connection").textContent = "no tick for some seconds: the daemon does not answer, or is busy";
}, 1000);

async function begin() {
  try {
    await renew();
  } catch {
    setTimeout(begin, RETRY_MS);
    return;
  }
  if (session.access === "none") {
    drawActions();
    login(main, begin);
    return;
  }
  if (!page.history.at.length) {
    // Without a journal, plots begin now.
    try {
      page.history = History.of(await getJson(`/page/past?span_s=${PAST_S}`));
    } catch (error) {
      tell(error.message, true);
    }
  }
  listen();
  show();
}

const KEYS = {
  p: () => session.access === "write" && page.status && actions.pause(page.status),
  m: () => session.access === "write" && page.status && actions.mode(page.status),
  s: () => session.access === "write" && view?.guest?.() && page.bounds(view.guest()),
  o: () => page.go(""),
  e: () => page.go("events"),
  w: () => page.go("what-if"),
  h: () => page.go("fleet"),
  t: () => document.getElementById("theme").click(),
  "?": actions.help,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || actions.isAsking()) return;
  const typing = event.target.matches("input, select, textarea");
  if (typing && event.key !== "Escape") {
    if (event.key === "Enter") event.target.blur();
    return;
  }
  if (event.key === "Enter" && event.target.matches("a, button")) return;
  if (typing) event.target.blur();
  const act = view?.keys?.[event.key] ?? KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
document.getElementById("help").addEventListener("click", actions.help);
document.addEventListener("theme", () => view?.repaint?.());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.repaint?.());
window.addEventListener("hashchange", show);
begin();
