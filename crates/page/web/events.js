// What happened: commands and starts out of the journal, and what guests began to do since the page
// was opened.
import { make, tell } from "./dom.js";
import { getJson } from "./api.js";
import { moment } from "./format.js";

/** Most changes of guests that are kept. */
const CHANGES_MAX = 200;

/** Changes between ticks, newest first. */
const changes = [];

/** Notes what differs between two statuses. */
export function note(before, now) {
  if (!before) return;
  const at = now.tick.seen_at_unix_ms;
  const last = new Map(before.guests.map((guest) => [guest.guest, guest]));
  for (const guest of now.guests) {
    const was = last.get(guest.guest);
    last.delete(guest.guest);
    if (!was) add(at, guest.guest, "was found");
    else if (kind(was) !== kind(guest)) add(at, guest.guest, guest.change?.text ?? guest.state.text);
  }
  for (const name of last.keys()) add(at, name, "is gone");
}

const kind = (guest) => `${guest.state.code} ${guest.change?.code} ${guest.change?.why?.code}`;

function add(at, guest, text) {
  changes.unshift({ at, guest, text });
  changes.length = Math.min(changes.length, CHANGES_MAX);
}

export function events(main) {
  const body = make("tbody");
  const name = (text) => make("th", { scope: "col" }, text);
  main.append(make("h2", {}, "Events"), make("table", { id: "events" },
    make("caption", {}, "Commands and starts of the last week from the journal; changes of guests since this page was opened"),
    make("thead", {}, make("tr", {}, name("AT"), name("GUEST"), name("WHAT"))), body));
  let recorded = [];

  function draw() {
    const all = [...changes, ...recorded].sort((a, b) => b.at - a.at);
    body.replaceChildren(...all.map(({ at, guest, text }) => make("tr", {},
      make("td", {}, moment(at)), make("td", {}, guest), make("td", { class: "wide" }, text))));
  }

  async function load() {
    try {
      recorded = (await getJson("/page/events")).map(({ at_unix_ms: at, text }) => ({ at, guest: "", text }));
    } catch (error) {
      tell(error.message, true);
    }
    draw();
  }

  load();
  return { draw, keys: { Escape: () => { location.hash = "#/"; }, r: load } };
}
