// The last ticks of every guest: out of the journal when the page is opened, then live.

/** Most ticks kept of a guest. */
const TICKS_MAX = 600;
/** Reports of swap-in closer than this are read as one. */
const REPORTS_APART_MS_MIN = 500;

/** Moments (seconds since 1970), and per guest a figure or null for each. */
export class History {
  at = [];
  guests = new Map();

  /** Begins with what the journal has (`GET /page/past`). */
  static of(past) {
    const history = new History();
    past.at_unix_ms.forEach((at, nth) => {
      const figures = new Map();
      for (const [name, lines] of Object.entries(past.guests)) {
        figures.set(name, {
          allocation: lines.allocation_bytes[nth], demand: lines.demand_bytes[nth],
          target: lines.target_bytes[nth], swapped: lines.swap_in_bytes[nth],
        });
      }
      history.put(at, figures);
    });
    return history;
  }

  /** Adds the tick of a status. */
  push(status) {
    const figures = new Map(status.guests.map((guest) => [guest.guest, {
      allocation: guest.allocation_bytes, demand: guest.demand_bytes,
      target: guest.target_bytes, swapped: guest.swap_in_bytes,
    }]));
    this.put(status.tick.seen_at_unix_ms, figures);
  }

  put(atMs, figures) {
    const at = atMs / 1000;
    if (this.at.length && at <= this.at.at(-1)) return;
    for (const name of figures.keys()) {
      if (!this.guests.has(name)) {
        const unknown = () => this.at.map(() => null);
        this.guests.set(name, {
          allocation: unknown(), demand: unknown(), target: unknown(), swapIn: unknown(), counted: null,
        });
      }
    }
    this.at.push(at);
    for (const [name, lines] of this.guests) {
      const now = figures.get(name);
      lines.allocation.push(now?.allocation ?? null);
      lines.demand.push(now?.demand ?? null);
      lines.target.push(now?.target ?? null);
      lines.swapIn.push(swapRate(lines, atMs, now?.swapped ?? null));
      if (!now && lines.allocation.slice(-TICKS_MAX).every((figure) => figure === null)) this.guests.delete(name);
    }
    if (this.at.length > TICKS_MAX) {
      this.at.shift();
      for (const lines of this.guests.values()) {
        for (const line of [lines.allocation, lines.demand, lines.target, lines.swapIn]) line.shift();
      }
    }
  }

  /** What a guest reads back from swap now, in bytes a second; null: not known. */
  rate(name) {
    return this.guests.get(name)?.swapIn.at(-1) ?? null;
  }
}

/** Bytes a second, of a counter that begins anew with the guest. */
function swapRate(lines, at, bytes) {
  const last = lines.counted;
  if (bytes === null || last === null || bytes < last.bytes || at < last.at) {
    lines.counted = bytes === null ? null : { at, bytes };
    return null;
  }
  if (at - last.at < REPORTS_APART_MS_MIN) return lines.swapIn.at(-1) ?? null;
  lines.counted = { at, bytes };
  return (bytes - last.bytes) * 1000 / (at - last.at);
}
