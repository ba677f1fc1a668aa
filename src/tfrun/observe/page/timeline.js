// Rounds as bars, what happened as marks; and the same as a list.

import { begin, colour, describe, explore } from "./draw.js";
import { clock, duration, isNumber, some } from "./format.js";

const LEFT = 2, TOP = 6, BAR = 20, MOST = 2000;
const STATES = { joining: "wait", waiting: "wait", preparing: "c4", running: "c0", leaving: "c1", stopping: "c1", releasing: "c2" };
const LEVELS = { info: "quiet", warning: "wait", error: "bad" };

export class Timeline {
  constructor(canvas, list) {
    Object.assign(this, { canvas, list, rounds: [], events: [], known: new Set(), chosen: -1, shown: 0 });
    explore(canvas, {
      at: (x) => this.point(x),
      keys: (key) => this.press(key),
      leave: () => this.choose(-1),
    });
  }

  set(view) {
    this.rounds = view.rounds ?? [];
    this.first = view.started ?? this.rounds[0]?.began ?? view.now;
    this.last = Math.max(view.ended ?? view.now, this.first + 1);
    const fresh = (view.events ?? []).filter((event) => {
      const name = `${event.time} ${event.text}`;
      return this.known.has(name) ? false : this.known.add(name);
    });
    // The view has the last ones only; those before have been seen here.
    this.events.push(...fresh);
    this.events.sort((a, b) => a.time - b.time);
    if (this.events.length > MOST) this.events.splice(0, this.events.length - MOST);
    if (fresh.length) this.write();
    this.draw();
    const kept = this.rounds.filter((round) => round.in_place).length;
    const bad = this.events.filter((event) => event.level === "error").length;
    describe(this.canvas, `Timeline of ${duration(this.last - this.first)}: ${some(this.rounds.length, "round")}${kept ? `, ${kept} in place` : ""}, ` +
      `${some(this.events.length, "event")}, ${some(bad, "error")}.`);
  }

  reset() {
    this.events = [];
    this.known.clear();
    this.list.replaceChildren();
  }

  write() {
    const rows = this.events.slice(-300).reverse().map((event) => {
      const row = document.createElement("li"), time = document.createElement("time"), text = document.createElement("span");
      time.textContent = clock(event.time);
      time.dateTime = new Date(event.time * 1000).toISOString();
      text.textContent = (event.level === "error" ? "✕ " : event.level === "warning" ? "! " : "") + event.text;
      row.dataset.level = event.level;
      row.append(time, text);
      return row;
    });
    this.list.replaceChildren(...rows);
  }

  x(time) {
    return LEFT + ((time - this.first) / (this.last - this.first)) * (this.width - 2 * LEFT);
  }

  draw() {
    const begun = begin(this.canvas);
    if (!begun || this.first === undefined) return;
    const { context, width, height } = begun;
    this.width = width;
    this.rounds.forEach((round) => {
      const states = round.states?.length ? round.states : [["running", round.began]];
      const end = round.ended ?? this.last;
      states.forEach(([state, since], at) => {
        if (!STATES[state]) return;
        const from = this.x(since), to = this.x(states[at + 1]?.[1] ?? end);
        context.fillStyle = colour(STATES[state]);
        context.globalAlpha = state === "running" ? 0.85 : 0.5;
        context.fillRect(from, TOP, Math.max(1, to - from), BAR);
      });
      context.globalAlpha = 1;
      const from = this.x(round.began), wide = this.x(end) - from;
      context.fillStyle = colour("ground");
      context.fillRect(from - 1, TOP, 1, BAR);
      const label = wide > 120 ? `round ${round.number}${round.in_place ? " in place" : ""} · ${some(round.workers ?? 0, "worker")}` : wide > 22 ? String(round.number) : "";
      context.fillStyle = colour("raised");
      context.textAlign = "left";
      context.font = `600 ${context.font}`;
      if (label) context.fillText(label, from + 6, TOP + BAR / 2 + 0.5);
      context.font = context.font.replace("600 ", "");
    });
    const y = TOP + BAR + 8;
    this.events.forEach((event, at) => {
      const x = this.x(event.time), chosen = at === this.chosen;
      context.fillStyle = context.strokeStyle = colour(LEVELS[event.level] ?? "quiet");
      context.beginPath();
      if (event.level === "error") { context.moveTo(x, y - 5); context.lineTo(x + 5, y); context.lineTo(x, y + 5); context.lineTo(x - 5, y); }
      else if (event.level === "warning") { context.moveTo(x, y - 5); context.lineTo(x + 4.5, y + 4); context.lineTo(x - 4.5, y + 4); }
      else context.rect(x - 0.75, y - 3, 1.5, 6);
      context.fill();
      if (chosen) { context.strokeStyle = colour("accent"); context.lineWidth = 2; context.strokeRect(x - 7, y - 7, 14, 14); context.lineWidth = 1; }
    });
    context.fillStyle = colour("quiet");
    context.textAlign = "left";
    context.fillText(clock(this.first), 0, height - 7);
    context.textAlign = "right";
    context.fillText(`${clock(this.last)} · ${duration(this.last - this.first)}`, width, height - 7);
  }

  choose(at) {
    this.chosen = at;
    this.draw();
    const event = this.events[at];
    return event ? `${clock(event.time)}  ${event.text}` : "";
  }

  point(x) {
    if (!this.events.length || !isNumber(this.width)) return "";
    let best = -1;
    this.events.forEach((event, at) => {
      if (best < 0 || Math.abs(this.x(event.time) - x) < Math.abs(this.x(this.events[best].time) - x)) best = at;
    });
    return Math.abs(this.x(this.events[best].time) - x) < 12 ? this.choose(best) : this.choose(-1);
  }

  press(key) {
    const last = this.events.length - 1, now = this.chosen < 0 ? last + 1 : this.chosen;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[key];
    if (to === undefined || last < 0) return null;
    const text = this.choose(Math.max(0, Math.min(last, to)));
    return { text, x: this.x(this.events[this.chosen].time), y: 30 };
  }
}
