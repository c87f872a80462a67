// Figures for people, as the commands print them.

const UNITS = [["TiB", 40], ["GiB", 30], ["MiB", 20], ["KiB", 10]];

/** A size in the largest unit that fits; `?` where it is not known. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  const [unit, shift] = UNITS.find(([, bits]) => bytes >= 2 ** bits) ?? ["B", 0];
  return `${Math.round(bytes * 10 / 2 ** shift) / 10}${unit}`;
}

/** Bytes a second. */
export const rate = (bytes) => (bytes === null || bytes === undefined ? "?" : `${size(bytes)}/s`);

/** A span of milliseconds in its two largest units. */
export function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s}.${Math.floor((ms % 1000) / 100)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** Hundredths of a per cent. */
export const percent = (points) => (points === null || points === undefined ? "?" : `${(points / 100).toFixed(2)}%`);

/** A moment, in the operator's time zone. */
export const moment = (ms) => new Date(ms).toLocaleString([], { hour12: false });

/** A moment of a plot that spans so many seconds: with a date, with seconds, or neither. */
export function clock(at, spanS) {
  const day = spanS > 86400 ? { day: "2-digit", month: "2-digit" } : {};
  const second = spanS < 600 ? { second: "2-digit" } : {};
  return new Date(at * 1000).toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit", ...second, hour12: false });
}

/** Bytes of a size such as `512MiB`, or an error that names what was expected. */
export function parseSize(text, name) {
  const found = /^(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|B)?$/.exec(text.trim());
  if (!found) throw new Error(`${name}: "${text}" is not a size: expected one such as 512MiB`);
  const shift = UNITS.find(([unit]) => unit === found[2])?.[1] ?? 0;
  return Math.round(Number(found[1]) * 2 ** shift);
}

/** A size as `ballast set` takes it, exact. */
export function exact(bytes) {
  const [unit, shift] = UNITS.find(([, bits]) => bytes > 0 && bytes % 2 ** bits === 0) ?? ["", 0];
  return `${bytes / 2 ** shift}${unit}`;
}
