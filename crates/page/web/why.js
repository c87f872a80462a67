// The last decision about one guest, step by step, as `ballast explain` tells it.
import { make } from "./dom.js";
import { getText } from "./api.js";

/** Width of the names at the beginning of a line. */
const NAME_WIDTH = 11;

export function why(main, page, name) {
  const steps = make("dl", { class: "why", id: "why" });
  main.append(
    make("h2", {}, `Why ${name} has what it has`),
    make("div", { class: "tools" }, make("a", { href: page.link("guest", name) }, "plots")), steps);
  let asking = false;

  async function draw() {
    // One question at a time, however fast ticks come.
    if (asking) return;
    asking = true;
    try {
      show(await getText(`/page/guests/${encodeURIComponent(name)}/why`));
    } catch (error) {
      steps.replaceChildren(make("dt", {}, "trouble"), make("dd", { class: "trouble" }, error.message));
    }
    asking = false;
  }

  function show(text) {
    const lines = text.trimEnd().split("\n");
    steps.replaceChildren(...lines.flatMap((line) => [
      make("dt", {}, line.slice(0, NAME_WIDTH).trim()), make("dd", {}, line.slice(NAME_WIDTH)),
    ]));
  }

  draw();
  return { draw, guest: () => name, keys: { Escape: () => page.go(""), Enter: () => page.go("guest", name) } };
}
