// What an owner does, each after a question that shows the command which does the same.
import { make, tell } from "./dom.js";
import { ofGuest, post, renew } from "./api.js";
import { exact, parseSize } from "./format.js";

const SHARES_MAX = 1_000_000;

let open = null;

/** Opens a dialog with these parts; `ready` is called when it is sent, and may throw what is wrong. */
function dialog(title, parts, ready, yes = "yes") {
  open?.close();
  const error = make("p", { class: "trouble", role: "alert" });
  const element = make("dialog", { "aria-labelledby": "dialog-title", onclose: () => {
    element.remove();
    if (open === element) open = null;
  } });
  const form = make("form", { method: "dialog", onsubmit: (event) => {
    event.preventDefault();
    try {
      ready();
      // A dialog that opens another one is closed by that.
      if (open === element) element.close();
    } catch (wrong) {
      error.textContent = wrong.message;
    }
  } }, make("h2", { id: "dialog-title" }, title), ...parts, error, make("div", { class: "buttons" },
    yes ? make("button", { id: "yes" }, yes) : null,
    make("button", { type: "button", id: "no", onclick: () => element.close() }, yes ? "no" : "close")));
  element.append(form);
  document.getElementById("dialogs").append(element);
  open = element;
  element.showModal();
}

function ask(text, command, act) {
  dialog(text, [make("p", {}, "This is the same as: ", make("code", {}, command))], async () => {
    try {
      tell(await act());
    } catch (error) {
      tell(error.message, true);
      if (error.status === 401 || error.status === 403) await renew();
    }
  });
}

/** Pauses, or resumes. */
export function pause(status) {
  const what = status.tick.paused ? "resume" : "pause";
  ask(status.tick.paused ? "Carry plans out again?" : "Leave all guests as they are?", `ballast ${what}`, () => post(`/v1/${what}`));
}

/** Balances, or only observes. */
export function mode(status) {
  const to = status.tick.observing ? "balance" : "observe";
  ask(to === "balance" ? "Move memory between guests?" : "Only observe, and move nothing?", `ballast mode ${to}`,
    () => post("/v1/mode", { mode: to }));
}

/** Asks for a guest's bounds, then whether they are meant. */
export function bounds(guest) {
  const field = (name, value) => {
    const input = make("input", { id: `set-${name}`, value, autocomplete: "off" });
    return { name, was: value, input, label: make("label", {}, name, input) };
  };
  const text = (bytes) => (bytes === null ? "" : exact(bytes));
  const [floor, ceiling, shares] = [
    field("floor", text(guest.floor_bytes)), field("ceiling", text(guest.ceiling_bytes)), field("shares", String(guest.shares ?? "")),
  ];
  dialog(`Bounds of ${guest.guest}`, [floor.label, ceiling.label, shares.label], () => {
    const change = {};
    const words = [];
    for (const { name, was, input } of [floor, ceiling, shares]) {
      const typed = input.value.trim();
      if (typed === was) continue;
      if (!typed) throw new Error(`${name} is empty: expected a figure`);
      if (name === "shares") {
        if (!/^\d+$/.test(typed) || Number(typed) < 1 || Number(typed) > SHARES_MAX) {
          throw new Error(`shares: "${typed}" is not a whole number from 1 to ${SHARES_MAX}`);
        }
        change.shares = Number(typed);
        words.push(`--shares ${typed}`);
      } else {
        change[`${name}_bytes`] = parseSize(typed, name);
        words.push(`--${name} ${exact(change[`${name}_bytes`])}`);
      }
    }
    if (!words.length) throw new Error("nothing is changed: type another figure, or no");
    ask(`Change the bounds of ${guest.guest}?`, `ballast set ${guest.guest} ${words.join(" ")}`,
      () => post(ofGuest(guest.guest, "set"), change));
  }, "go on");
}

const HELP = [
  ["j k ↓ ↑", "select a guest; g G the first, the last"],
  ["Enter", "explain the guest; again: its plots; Esc back"],
  ["/", "show guests whose name contains a text; Esc all"],
  ["< > r", "sort by another column; turn around"],
  ["f", "fold guests at rest"],
  ["p", "pause or resume, after a question"],
  ["m", "balance or only observe, after a question"],
  ["s", "set floor, ceiling, shares, after a question"],
  ["o e w h", "overview, events, what-if, hosts of the fleet"],
  ["t", "dark or light"],
  ["?", "this help"],
];

/** Tells the keys. */
export function help() {
  const rows = HELP.flatMap(([keys, what]) => [make("dt", {}, keys), make("dd", {}, what)]);
  dialog("Keys", [make("dl", { class: "why" }, ...rows)], () => {}, null);
}

/** Whether a question is open, which has the keys. One that was closed tells so a moment later. */
export const isAsking = () => open !== null && open.open;
