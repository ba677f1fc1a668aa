// The heat map: a row for each worker, a column for each piece of time.

import { begin, colour, describe, explore, isDark, FONT } from "./draw.js";
import { clock, isNumber, seconds, some, taskName } from "./format.js";

const LEFT = 72, BOTTOM = 18, MOST_ROWS = 420, KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const MOST_COLUMNS = 256;
// Cividis (Nuñez, Anderton and Renslow 2018), which looks the same to people who see no red or green.
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];

// The colour of a time between `low` and `high`: slow ones are far from the ground.
export function heatColour(value, low, high) {
  let part = high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0;
  if (!isDark()) part = 1 - part;
  const at = Math.min(part * (CIVIDIS.length - 1), CIVIDIS.length - 1 - 1e-6), under = Math.floor(at);
  return CIVIDIS[under].map((one, i) => Math.round(one + (CIVIDIS[under + 1][i] - one) * (at - under)));
}

// Between which times the colours go: what is usual is near the quiet end, what is twice that is not.
export function heatRange(values) {
  const known = values.filter(isNumber).sort((a, b) => a - b);
  if (!known.length) return [0, 1];
  const at = (part) => known[Math.min(known.length - 1, Math.floor(part * known.length))];
  const median = at(0.5);
  return [0.75 * median, Math.max(1.75 * median, Math.min(at(0.995), 4 * median))];
}

export class Heat {
  constructor(canvas, key, read) {
    Object.assign(this, { canvas, key, read, tasks: [], time: [], rows: { own: [], step: [] }, which: "own" });
    this.image = document.createElement("canvas");
    this.row = this.column = -1;
    explore(canvas, {
      at: (x, y) => this.point(x, y),
      keys: (pressed) => this.press(pressed),
      leave: () => { this.row = this.column = -1; this.draw(); },
    });
  }

  // All that the server remembers.
  set({ tasks, time, own, step }) {
    this.tasks = [...tasks];
    this.time = [...time];
    this.rows = { own: own.map((row) => [...row]), step: step.map((row) => [...row]) };
    this.paint();
  }

  // What the workers say now becomes one more column.
  add(now, tasks) {
    if (this.time.length && now - this.time.at(-1) < 0.5) return;
    const place = new Map(this.tasks.map((task, at) => [task, at]));
    for (const { task } of tasks) {
      if (place.has(task)) continue;
      place.set(task, this.tasks.length);
      this.tasks.push(task);
      for (const rows of Object.values(this.rows)) rows.push(this.time.map(() => null));
    }
    this.time.push(now);
    for (const rows of Object.values(this.rows)) for (const row of rows) row.push(null);
    for (const one of tasks) {
      const at = place.get(one.task);
      if (one.state !== "running") continue;
      this.rows.own[at][this.time.length - 1] = one.own_seconds;
      this.rows.step[at][this.time.length - 1] = one.step_seconds;
    }
    if (this.time.length > MOST_COLUMNS) this.thin();
    this.paint();
  }

  // Two old columns become one, as the slower of both: memory stays the same for ever.
  thin() {
    const half = Math.floor(this.time.length / 2) & ~1;
    const merged = (row) => {
      const kept = [];
      for (let at = 0; at < half; at += 2) {
        const [a, b] = [row[at], row[at + 1]];
        kept.push(isNumber(a) && isNumber(b) ? Math.max(a, b) : isNumber(a) ? a : b);
      }
      return [...kept, ...row.slice(half)];
    };
    for (const which of Object.keys(this.rows)) this.rows[which] = this.rows[which].map(merged);
    this.time = [...this.time.slice(0, half).filter((_, at) => at % 2 === 1), ...this.time.slice(half)];
  }

  show(which) {
    this.which = which;
    this.paint();
  }

  // One pixel for each cell, which the browser then enlarges.
  paint() {
    const rows = this.rows[this.which], wide = this.time.length, high = this.tasks.length;
    if (!wide || !high) return this.draw();
    this.canvas.style.height = `${Math.min(440, Math.max(70, high * 18 + BOTTOM))}px`;
    const every = Math.max(1, Math.floor((wide * high) / 20000)), sample = [];
    let counted = 0;
    for (const row of rows) for (const value of row) if (counted++ % every === 0) sample.push(value);
    const [low, top] = (this.range = heatRange(sample));
    // Where there are more workers than pixels, a row shows the slowest of some: none gets lost.
    const drawn = Math.min(high, MOST_ROWS);
    this.image.width = wide;
    this.image.height = drawn;
    const context = this.image.getContext("2d"), pixels = context.createImageData(wide, drawn);
    const table = Array.from({ length: 64 }, (_, at) => heatColour(at / 63, 0, 1));
    const slowest = new Float64Array(wide);
    for (let line = 0, row = 0; line < drawn; line += 1) {
      slowest.fill(-1);
      for (const end = Math.floor(((line + 1) * high) / drawn); row < end; row += 1) {
        const values = rows[row];
        for (let column = 0; column < wide; column += 1) {
          if (isNumber(values[column]) && values[column] > slowest[column]) slowest[column] = values[column];
        }
      }
      for (let column = 0, at = line * wide * 4; column < wide; column += 1, at += 4) {
        if (slowest[column] < 0) continue;
        const part = Math.min(1, Math.max(0, (slowest[column] - low) / (top - low)));
        const [r, g, b] = table[Math.round(part * 63)];
        pixels.data[at] = r; pixels.data[at + 1] = g; pixels.data[at + 2] = b; pixels.data[at + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
    this.draw();
    this.drawKey();
    this.tell();
  }

  draw() {
    const begun = begin(this.canvas);
    if (!begun || !this.time.length || !this.tasks.length) return;
    const { context, width, height } = begun, high = (height - BOTTOM) / this.tasks.length;
    const wide = (width - LEFT) / this.time.length;
    Object.assign(this, { wide, high });
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, LEFT, 0, width - LEFT, height - BOTTOM);
    if (high >= 6) {
      context.fillStyle = colour("ground");
      for (let row = 1; row < this.tasks.length; row += 1) context.fillRect(LEFT, Math.round(row * high), width, 1);
    }
    context.fillStyle = colour("quiet");
    context.textAlign = "right";
    for (let row = 0, next = 0; row < this.tasks.length; row += 1) {
      const y = Math.max(7, (row + 0.5) * high);
      if (y < next) continue;
      context.fillText(taskName(this.tasks[row]), LEFT - 7, y);
      next = y + 13;
    }
    context.textAlign = "left";
    context.fillText(clock(this.time[0]), LEFT, height - 7);
    context.textAlign = "right";
    context.fillText(clock(this.time.at(-1)), width, height - 7);
    if (this.row >= 0 && this.column >= 0) {
      context.strokeStyle = colour("c1");
      context.lineWidth = 2;
      context.strokeRect(LEFT + this.column * wide, this.row * high, Math.max(wide, 3), Math.max(high, 3));
      context.lineWidth = 1;
    }
  }

  drawKey() {
    const begun = begin(this.key);
    if (!begun) return;
    const { context, width } = begun, [low, high] = this.range;
    for (let x = 0; x < width; x += 1) {
      context.fillStyle = `rgb(${heatColour(x / width, 0, 1)})`;
      context.fillRect(x, 0, 1, 9);
    }
    context.font = FONT;
    context.fillStyle = colour("quiet");
    context.textAlign = "left";
    context.fillText(`≤ ${seconds(low)}`, 0, 20);
    context.textAlign = "right";
    context.fillText(`≥ ${seconds(high)}`, width, 20);
    describe(this.key, `Colours: from ${seconds(low)} or less, to ${seconds(high)} or more`);
  }

  tell() {
    const means = this.rows[this.which].map((row) => {
      const known = row.slice(-10).filter(isNumber);
      return known.length ? known.reduce((a, b) => a + b) / known.length : NaN;
    });
    const worst = means.reduce((best, value, at) => (value > (means[best] ?? -1) ? at : best), -1);
    const what = this.which === "own" ? "own part of a step" : "whole step";
    const slowest = worst < 0 ? "nothing yet" : `slowest lately: ${taskName(this.tasks[worst])} with ${seconds(means[worst])}`;
    describe(this.canvas, `Heat map of the ${what}, ${some(this.tasks.length, "worker")}; ${slowest}.`);
  }

  point(x, y) {
    if (!this.wide || x < LEFT) return "";
    this.column = Math.min(this.time.length - 1, Math.floor((x - LEFT) / this.wide));
    this.row = Math.min(this.tasks.length - 1, Math.floor(y / this.high));
    this.draw();
    return this.textAt();
  }

  press(key) {
    if (!KEYS[key] || !this.wide) return null;
    const [down, right] = KEYS[key], fresh = this.row < 0;
    const limit = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.row = fresh ? 0 : limit(this.row + down, this.tasks.length);
    this.column = fresh ? this.time.length - 1 : limit(this.column + right, this.time.length);
    this.draw();
    return { text: this.textAt(), x: LEFT + this.column * this.wide, y: this.row * this.high };
  }

  textAt() {
    const value = this.rows[this.which][this.row]?.[this.column];
    const text = `${taskName(this.tasks[this.row])}, ${clock(this.time[this.column])}: ${isNumber(value) ? seconds(value) : "no step"}`;
    this.read.textContent = text;
    return text;
  }
}
