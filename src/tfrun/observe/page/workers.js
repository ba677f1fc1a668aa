// The workers: a card for each of a few, a square for each of many.

import { begin, colour, describe, explore } from "./draw.js";
import { bytes, count, isNumber, logName, seconds, some, taskName } from "./format.js";
import { heatColour, heatRange } from "./heat.js";

const MOST_CARDS = 48;
const PARTS = ["input", "compute", "communication", "other"];
const KINDS = { running: "good", done: "good", starting: "wait", failed: "bad", gone: "bad" };

const element = (name, className = "", text = "") => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
};

// Changes a text only where it is another: what stands still costs nothing.
const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

class Card {
  constructor(openLog) {
    this.root = element("div", "card");
    this.root.setAttribute("role", "listitem");
    const head = element("h3");
    this.name = element("button");
    this.name.type = "button";
    this.name.addEventListener("click", () => openLog(logName(this.task)));
    this.state = element("span", "state");
    this.stateText = element("b");
    const dot = element("i");
    dot.setAttribute("aria-hidden", "true");
    this.state.append(dot, this.stateText);
    head.append(this.name, this.state);
    this.host = element("div", "host");
    this.stack = element("div", "stack");
    this.stack.setAttribute("role", "img");
    this.parts = PARTS.map(() => this.stack.appendChild(element("i")));
    const list = element("dl");
    this.values = Object.fromEntries(["step", "own", "memory", "CPU", "speed", "GPU"].map((name) => {
      const term = element("dt", "", name), value = element("dd");
      list.append(term, value);
      return [name, { term, value }];
    }));
    this.note = element("p", "note");
    this.root.append(head, this.host, this.stack, list, this.note);
  }

  set(task) {
    this.task = task.task;
    const kind = KINDS[task.state] ?? "wait";
    write(this.name, taskName(task.task));
    this.name.setAttribute("aria-label", `${taskName(task.task)}: show its log`);
    this.state.dataset.kind = this.root.dataset.kind = kind;
    write(this.stateText, task.state);
    write(this.host, `${task.host ?? "?"}${task.pid ? ` · process ${task.pid}` : ""}${task.since_round < task.round ? ` · since round ${task.since_round}` : ""}`);
    this.root.dataset.slow = String(Boolean(task.slow_at));
    const split = task.split ?? {}, whole = PARTS.reduce((sum, part) => sum + (split[part] || 0), 0);
    PARTS.forEach((part, at) => {
      const style = this.parts[at].style;
      style.background = `var(--${part})`;
      style.width = whole ? `${((split[part] || 0) / whole) * 100}%` : "0";
    });
    this.stack.setAttribute("aria-label", whole
      ? `A step: ${PARTS.filter((part) => isNumber(split[part])).map((part) => `${part} ${seconds(split[part])}`).join(", ")}` : "No step yet");
    write(this.values.step.value, seconds(task.step_seconds));
    write(this.values.own.value, seconds(task.own_seconds));
    write(this.values.memory.value, bytes(task.rss_bytes));
    write(this.values.CPU.value, isNumber(task.cpu_share) ? `${Math.round(task.cpu_share * 100)} %` : "–");
    write(this.values.speed.value, isNumber(task.samples_per_second) ? `${count(task.samples_per_second)}/s` : "–");
    const gpu = isNumber(task.gpu_bytes);
    this.values.GPU.term.hidden = this.values.GPU.value.hidden = !gpu;
    if (gpu) write(this.values.GPU.value, bytes(task.gpu_bytes));
    const note = task.slow_at ? `slow at: ${task.slow_at}` : kind === "bad" ? task.status ?? "" : "";
    write(this.note, note);
    this.note.hidden = !note;
    this.note.classList.toggle("bad", kind === "bad");
  }
}

export class Workers {
  constructor({ cards, many, tiles, chosen, openLog }) {
    Object.assign(this, { cards, many, tiles, chosen, openLog, pool: [], tasks: [], at: -1 });
    this.detail = new Card(openLog);
    this.detail.root.removeAttribute("role");
    explore(tiles, { at: (x, y) => this.point(x, y), keys: (key) => this.press(key) });
    tiles.addEventListener("click", (event) => {
      const box = tiles.getBoundingClientRect();
      this.point(event.clientX - box.left, event.clientY - box.top);
      if (this.tasks[this.at]) openLog(logName(this.tasks[this.at].task));
    });
  }

  set(tasks) {
    this.tasks = tasks;
    const isMany = tasks.length > MOST_CARDS;
    this.cards.hidden = isMany;
    this.many.hidden = !isMany;
    if (isMany) this.drawTiles();
    else this.setCards();
  }

  setCards() {
    while (this.pool.length < this.tasks.length) this.cards.append(this.pool[this.pool.push(new Card(this.openLog)) - 1].root);
    while (this.pool.length > this.tasks.length) this.pool.pop().root.remove();
    this.tasks.forEach((task, at) => this.pool[at].set(task));
  }

  drawTiles() {
    const wide = this.tiles.clientWidth;
    if (!wide) return;
    const size = Math.max(9, Math.min(22, Math.floor(Math.sqrt((wide * 240) / this.tasks.length))));
    this.size = size;
    this.columns = Math.max(1, Math.floor(wide / size));
    const height = `${Math.ceil(this.tasks.length / this.columns) * size}px`;
    if (this.tiles.style.height !== height) this.tiles.style.height = height;
    const begun = begin(this.tiles);
    if (!begun) return;
    const { context } = begun, [low, high] = heatRange(this.tasks.map((task) => task.own_seconds));
    this.tasks.forEach((task, at) => {
      const x = (at % this.columns) * size, y = Math.floor(at / this.columns) * size, inner = size - 2;
      const isUp = task.state === "running" || task.state === "done";
      if (isUp && isNumber(task.own_seconds)) context.fillStyle = `rgb(${heatColour(task.own_seconds, low, high)})`;
      else context.fillStyle = colour("line");
      context.fillRect(x, y, inner, inner);
      if (!isUp) {
        // Not by colour alone: a cross for those that are gone, a dot for those that start.
        context.strokeStyle = context.fillStyle = colour(KINDS[task.state] === "bad" ? "bad" : "wait");
        context.lineWidth = 1.75;
        context.beginPath();
        if (KINDS[task.state] === "bad") {
          context.moveTo(x + 2, y + 2); context.lineTo(x + inner - 2, y + inner - 2);
          context.moveTo(x + inner - 2, y + 2); context.lineTo(x + 2, y + inner - 2);
          context.stroke();
        } else { context.arc(x + inner / 2, y + inner / 2, 2, 0, 7); context.fill(); }
      }
      if (task.slow_at || at === this.at) {
        context.strokeStyle = colour(at === this.at ? "accent" : "c1");
        context.lineWidth = 2;
        context.strokeRect(x, y, inner, inner);
      }
    });
    context.lineWidth = 1;
    const up = this.tasks.filter((task) => task.state === "running").length;
    const slow = this.tasks.filter((task) => task.slow_at).map((task) => taskName(task.task));
    describe(this.tiles, `${some(this.tasks.length, "worker")}, ${count(up)} running; slow: ${slow.slice(0, 10).join(", ") || "none"}.`);
    if (this.tasks[this.at]) this.detail.set(this.tasks[this.at]);
  }

  choose(at) {
    const task = this.tasks[at];
    if (!task) return "";
    this.at = at;
    if (!this.detail.root.isConnected) this.chosen.append(this.detail.root);
    this.drawTiles();
    return `${taskName(task.task)} on ${task.host}: ${task.state}, own ${seconds(task.own_seconds)}`;
  }

  point(x, y) {
    const column = Math.floor(x / this.size);
    return column < this.columns ? this.choose(Math.floor(y / this.size) * this.columns + column) : "";
  }

  press(key) {
    if (key === "Enter" && this.tasks[this.at]) this.openLog(logName(this.tasks[this.at].task));
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[key];
    if (!by) return null;
    const to = this.at < 0 ? 0 : Math.max(0, Math.min(this.tasks.length - 1, this.at + by));
    const text = this.choose(to);
    return { text, x: (to % this.columns) * this.size, y: Math.floor(to / this.columns) * this.size };
  }
}
