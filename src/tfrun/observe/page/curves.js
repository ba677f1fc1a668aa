// Lines and stacked areas over time or steps.

import { begin, colour, describe, explore, ticks, timeTicks } from "./draw.js";
import { asNumber, figure, isNumber } from "./format.js";

const LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 20;

// A plot in a canvas. `lines`: [{name, colour, dashed, values}], parallel to `x`.
export class Plot {
  constructor(canvas, { title, unit = figure, xUnit = figure, stacked = false, fromZero = false }) {
    Object.assign(this, { canvas, title, unit, xUnit, stacked, fromZero, x: [], lines: [], marks: [] });
    this.chosen = -1;
    explore(canvas, {
      at: (x) => this.choose(this.nearest(x)),
      keys: (key) => this.key(key),
      leave: () => { this.chosen = -1; this.draw(); },
    });
  }

  set(x, lines, marks = []) {
    this.x = x;
    this.lines = lines.map((line) => ({ ...line, values: line.values.map(asNumber) }));
    this.marks = marks;
    this.draw();
    this.tell();
  }

  tell() {
    const parts = this.lines.map((line) => {
      const known = line.values.filter(isNumber);
      if (!known.length) return `${line.name}: nothing yet`;
      const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
      return `${line.name}: now ${this.unit(known.at(-1))}, lowest ${this.unit(low)}, highest ${this.unit(high)}, first ${this.unit(known[0])}`;
    });
    describe(this.canvas, `${this.title}. ${parts.join(". ") || "Nothing yet"}.`);
  }

  // Values as they are drawn: those of a stack on top of each other.
  heights() {
    if (!this.stacked) return this.lines.map((line) => line.values);
    const sum = new Float64Array(this.x.length);
    return this.lines.map((line) => line.values.map((value, at) => (sum[at] += isNumber(value) ? value : 0)));
  }

  range(heights) {
    let low = this.stacked || this.fromZero ? 0 : Infinity, high = -Infinity;
    const all = [];
    for (const values of heights) for (const value of values) if (isNumber(value)) all.push(value);
    for (const value of all) { if (value < low) low = value; if (value > high) high = value; }
    if (all.length > 30 && (this.stacked || this.fromZero)) {
      // One slow first step would flatten all the others.
      all.sort((a, b) => a - b);
      high = Math.min(high, 2.5 * all[Math.floor(all.length * 0.95)] || high);
    }
    if (!(high > low)) { const by = Math.abs(low) * 0.1 || 1; return isNumber(low) ? [low - by * (low > 0 || !this.fromZero), low + by] : [0, 1]; }
    const room = (high - low) * 0.06;
    return [low === 0 ? 0 : low - room, high + room];
  }

  draw() {
    const begun = begin(this.canvas);
    if (!begun) return;
    const { context, width, height } = begun, heights = this.heights();
    const [low, high] = this.range(heights);
    const first = this.x[0] ?? 0, last = this.x.at(-1) ?? 1, span = last - first || 1;
    this.px = (value) => LEFT + ((value - first) / span) * (width - LEFT - RIGHT);
    const py = (value) => TOP + (1 - (Math.min(value, high) - low) / (high - low)) * (height - TOP - BOTTOM);
    context.textAlign = "right";
    for (const tick of ticks(low, high)) {
      const y = Math.round(py(tick)) + 0.5;
      context.strokeStyle = colour("grid");
      context.beginPath(); context.moveTo(LEFT, y); context.lineTo(width - RIGHT, y); context.stroke();
      context.fillStyle = colour("quiet");
      context.fillText(this.unit(tick), LEFT - 6, y);
    }
    context.textAlign = "center";
    const origin = this.origin ?? 0, places = this.xName === "after" ? timeTicks : ticks;
    for (const tick of places(first - origin, last - origin, Math.max(2, Math.floor(width / 110)))) {
      const x = this.px(tick + origin);
      if (x > LEFT + 8 && x < width - RIGHT - 12) context.fillText(this.xUnit(tick), x, height - 8);
    }
    for (const mark of this.marks) {
      if (mark.x < first || mark.x > last) continue;
      context.strokeStyle = colour("c1");
      context.setLineDash([2, 3]);
      context.beginPath(); context.moveTo(this.px(mark.x), TOP); context.lineTo(this.px(mark.x), height - BOTTOM); context.stroke();
      context.setLineDash([]);
    }
    if (this.stacked) this.areas(context, heights, py);
    else this.lines.forEach((line, at) => this.line(context, line, heights[at], py));
    if (this.chosen >= 0 && this.chosen < this.x.length) {
      const x = this.px(this.x[this.chosen]);
      context.strokeStyle = colour("quiet");
      context.beginPath(); context.moveTo(x, TOP); context.lineTo(x, height - BOTTOM); context.stroke();
    }
  }

  line(context, line, values, py) {
    context.strokeStyle = context.fillStyle = colour(line.colour);
    context.lineWidth = 1.75;
    context.lineJoin = "round";
    context.setLineDash(line.dashed ? [5, 3] : []);
    context.beginPath();
    let pen = false, points = 0, last = -1;
    values.forEach((value, at) => {
      if (!isNumber(value)) { pen = pen && line.dashed; return; }
      const x = this.px(this.x[at]), y = py(value);
      if (pen) context.lineTo(x, y); else context.moveTo(x, y);
      pen = true; points += 1; last = at;
    });
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    if (last < 0) return;
    context.beginPath();
    context.arc(this.px(this.x[last]), py(values[last]), points === 1 ? 3.5 : 2.75, 0, 7);
    context.fill();
  }

  areas(context, heights, py) {
    let below = this.x.map(() => 0);
    heights.forEach((values, at) => {
      context.fillStyle = colour(this.lines[at].colour);
      context.beginPath();
      this.x.forEach((x, i) => context.lineTo(this.px(x), py(values[i])));
      for (let i = this.x.length - 1; i >= 0; i -= 1) context.lineTo(this.px(this.x[i]), py(below[i]));
      context.fill();
      below = values;
    });
  }

  // Where there is something to read: rounds begin with points at which nothing was measured.
  points() {
    return [...this.x.keys()].filter((at) => this.lines.some((line) => isNumber(line.values[at])));
  }

  nearest(px) {
    if (!this.px) return -1;
    let best = -1, least = Infinity;
    for (const at of this.points()) {
      const far = Math.abs(this.px(this.x[at]) - px);
      if (far < least) { best = at; least = far; }
    }
    return best;
  }

  choose(at) {
    if (at < 0) return "";
    if (at !== this.chosen) { this.chosen = at; this.draw(); }
    const x = this.xUnit(this.x[at] - (this.origin ?? 0));
    return [`${this.xName ?? ""} ${x}`.trim(), ...this.lines.filter((line) => isNumber(line.values[at]))
      .map((line) => `${line.name} ${this.unit(line.values[at])}`)].join("\n");
  }

  key(key) {
    const points = this.points(), last = points.length - 1;
    const after = points.findIndex((at) => at >= this.chosen), now = this.chosen < 0 || after < 0 ? last : after;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[key];
    if (to === undefined || last < 0) return null;
    const text = this.choose(points[Math.max(0, Math.min(last, to))]);
    return { text, x: this.px(this.x[this.chosen]), y: 20 };
  }
}
