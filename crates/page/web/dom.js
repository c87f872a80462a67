// Elements, made of text and other elements; text of guests never becomes markup.

/** An element: `make("td", { class: "figure" }, "1GiB")`; handlers are `onclick` and the like. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A list of names with their figures. */
export function facts(pairs, label) {
  const rows = pairs.map(([name, figure]) => make("div", {}, make("dt", {}, name), make("dd", {}, figure)));
  return make("dl", { class: "facts", "aria-label": label }, ...rows);
}

/** Says something to the operator: an answer, or what went wrong; nothing takes it away. */
export function tell(text = "", isTrouble = false) {
  const place = document.getElementById("message");
  place.textContent = text;
  place.classList.toggle("trouble", isTrouble);
}
