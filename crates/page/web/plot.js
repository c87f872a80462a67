// Plots by uPlot, in the page's colours.
import { clock, moment, rate, size } from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Lines of memory, of one guest: a name, its colour, its figures. */
export const MEMORY = [["allocation", "allocation"], ["demand", "demand"], ["target", "target"]];

/** Steps of an axis of memory: a kibibyte and its doubles. */
const STEPS = Array.from({ length: 40 }, (_, nth) => 2 ** (nth + 10));

const scales = { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(most ?? 0, 1) * 1.05] } };

/** A plot of a few pixels, without axes; both lines share a scale from nothing. */
export class Spark {
  constructor(element) {
    const line = (name) => ({ stroke: colour(name), width: 1.5, points: { show: false } });
    this.plot = new uPlot({
      width: 180, height: 36, scales, cursor: { show: false }, legend: { show: false },
      axes: [{ show: false }, { show: false }], padding: [2, 0, 2, 0],
      series: [{}, line("demand"), line("allocation")],
    }, [[], [], []], element);
    this.element = element;
  }

  show(history, lines, told) {
    this.plot.setData([history.at, lines.demand, lines.allocation]);
    this.element.setAttribute("aria-label", told);
  }

  end() { this.plot.destroy(); }
}

/** What a legend says: the figure under the cursor, else the latest. */
const latest = (text) => (plot, figure, nth, at) => text(at === null || at === undefined ? plot.data[nth].at(-1) : figure);

/** A plot over time with axes and a legend, as wide as its place. */
export class Plot {
  constructor(element, label, lines, isRate) {
    const text = isRate ? rate : size;
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    this.element = element;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", label);
    this.plot = new uPlot({
      width: this.width(), height: 220, scales,
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((at) => clock(at, ticks.at(-1) - ticks[0])), space: 90 },
        { ...axis, size: 82, incrs: STEPS, values: (_, ticks) => ticks.map((bytes) => text(bytes)) },
      ],
      series: [
        { label: "at", value: latest((at) => (at === undefined ? "" : moment(at * 1000))) },
        ...lines.map(([name, key]) => ({
          label: name, stroke: colour(key), width: 1.5, points: { show: false }, value: latest(text),
        })),
      ],
    }, [[], ...lines.map(() => [])], element);
    this.observer = new ResizeObserver(() => this.plot.setSize({ width: this.width(), height: 220 }));
    this.observer.observe(element);
  }

  width() { return Math.max(200, this.element.clientWidth - 12); }

  show(at, lines) { this.plot.setData([at, ...lines]); }

  end() {
    this.observer.disconnect();
    this.plot.destroy();
  }
}
