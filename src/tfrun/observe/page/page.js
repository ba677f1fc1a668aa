// The live page: takes the job's view and shows each part where it has changed.

import { Plot } from "./curves.js";
import { onThemeChange } from "./draw.js";
import { asNumber, count, duration, figure, isNumber, percent, seconds, some, taskName } from "./format.js";
import { Heat } from "./heat.js";
import { Logs } from "./logs.js";
import { Stream } from "./stream.js";
import { Timeline } from "./timeline.js";
import { Workers } from "./workers.js";

const $ = (id) => document.getElementById(id);
const KINDS = {
  training: "good", finished: "good", evaluating: "good", saving: "good", failed: "bad", lost: "bad",
  waiting: "wait", starting: "wait", tracing: "wait", recovering: "wait", stopping: "wait", preempted: "wait", stopped: "wait",
};
const LINES = ["c0", "c2", "c4", "c5"];
const PARTS = ["compute", "communication", "input", "other"];
const SPENT = {
  training: "c0", evaluation: "c5", checkpoint: "c2", tracing: "c4", start: "input", recovery: "c1", redone: "c3",
  waiting: "wait", end: "quiet", other: "other",
};

// The key of the link has done its work; it is good for nothing any more, and need not be seen.
if (location.search) history.replaceState(null, "", location.pathname);

const timeline = new Timeline($("timeline"), $("events"));
const logs = new Logs({ select: $("log-name"), follow: $("log-follow"), find: $("log-find"), pre: $("log") });
const workers = new Workers({ cards: $("cards"), many: $("many"), tiles: $("tiles"), chosen: $("chosen"), openLog: (name) => logs.open(name, true) });
const heat = new Heat($("heat"), $("heat-key"), $("heat-read"));
const throughput = new Plot($("throughput"), { title: "Samples each second, all workers", fromZero: true });
const split = new Plot($("split"), { title: "Time of one step", unit: seconds, stacked: true });
const curves = new Map();

function write(id, text) {
  const node = $(id);
  if (node.textContent !== text) node.textContent = text;
}

function showHead(view) {
  const state = view.state ?? "waiting", node = $("state"), training = view.training;
  node.dataset.kind = KINDS[state] ?? "wait";
  node.dataset.live = String(Boolean(view.live));
  write("state-text", state);
  write("name", view.name || "tfrun");
  document.title = `${training?.done ? `${percent(training.done)} ` : ""}${view.name ?? ""} · ${state} · tfrun`;
  const done = state === "finished" ? 1 : training?.done;
  $("bar").firstElementChild.style.transform = `scaleX(${isNumber(done) ? done : 0})`;
  if (isNumber(done)) $("bar").setAttribute("aria-valuenow", String(Math.round(done * 100)));
  const loss = training?.logs?.loss;
  const figures = [
    ["workers up", `${count(view.workers?.up)}`, ` of ${count(view.workers?.high)}`],
    ["epoch", isNumber(training?.epoch) ? count(training.epoch + 1) : "–", isNumber(training?.epochs) ? ` of ${count(training.epochs)}` : ""],
    ["step", count(training?.step), ""],
    ["loss", figure(loss, 4), ""],
    ["samples/s", count(training?.samples_per_second), ""],
    ["step time", seconds(training?.step_seconds), ""],
    ["goodput", percent(view.goodput?.share), ""],
    ["restarts", count(view.restarts ?? 0), ""],
    ["running for", duration(view.seconds), ""],
    ["time left", training && !view.ended ? duration(training.seconds_left) : "–", ""],
  ];
  const list = $("figures");
  if (!list.children.length) {
    for (const [name] of figures) {
      const cell = document.createElement("div");
      cell.append(document.createElement("dt"), document.createElement("dd"));
      cell.lastChild.append(document.createTextNode(""), document.createElement("small"));
      cell.firstChild.textContent = name;
      list.append(cell);
    }
  }
  list.lastChild.hidden = Boolean(view.ended);
  figures.forEach(([, value, rest], at) => {
    const [text, small] = list.children[at].lastChild.childNodes;
    if (text.data !== value) text.data = value;
    if (small.textContent !== rest) small.textContent = rest;
  });
  write("where", view.run_dir ?? "");
}

function showFailure({ failure }) {
  $("failure").hidden = !failure;
  if (!failure) return;
  write("failure-headline", `${failure.code}: ${failure.headline}`);
  write("failure-message", failure.said ?? "");
  $("failure-message").hidden = !failure.said || (failure.traceback ?? "").includes(failure.said);
  const advice = [["likely", failure.likely], ["what to do", failure.fix]].filter(([, text]) => text);
  $("failure-advice").replaceChildren(...advice.flatMap(([name, text]) => {
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = name;
    value.textContent = text;
    return [term, value];
  }));
  write("failure-traceback", failure.traceback ?? "");
  $("failure-traceback").hidden = !failure.traceback;
  write("failure-rest", [failure.others_text, failure.log && `Log: ${failure.log}`].filter(Boolean).join(" · "));
}

// Who is about to take a worker's place, and whether those that were left keep theirs.
function showSuccessors({ successors, changes = {}, tasks = [], ended }) {
  const each = ended ? [] : successors?.each ?? [], kept = changes.in_place, all = kept + changes.afresh;
  const texts = each.slice(0, 6).map((one) => `a successor of ${taskName(one.task)} on ${one.agent} ${one.state === "ready" ? "is ready" : "starts"}`);
  if (each.length > 6) texts.push(`${count(each.length - 6)} more`);
  if (successors?.given_up && !ended) texts.push("successors came to nothing, and no more are started");
  const stayed = tasks.filter((task) => task.since_round < task.round).length;
  if (kept) texts.unshift(`${count(kept)} of ${some(all, "change")} in place`, `${count(stayed)} of ${some(tasks.length, "worker")} stayed in their processes`);
  $("successors").hidden = !texts.length;
  write("successors", texts.join(" · "));
}

function showSlow({ stragglers = [] }) {
  const now = stragglers.filter((one) => one.until === null);
  $("slow").hidden = !now.length;
  const texts = now.slice(0, 12).map((one) => `${taskName(one.task)} holds up the others: ${figure(one.factor)} times the usual time, slow at ${one.slow_at}${one.network_to ? ` to ${one.network_to}` : ""}`);
  if (now.length > 12) texts.push(`and ${now.length - 12} more`);
  if ($("slow-list").textContent === texts.join("")) return;
  $("slow-list").replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

function showCurves({ series, recoveries = [], epochs = [] }) {
  const logged = series?.logs ?? {}, steps = series?.step ?? [];
  // "val_loss" belongs into the plot of "loss"; it is known at the end of each epoch.
  const names = [...new Set([...Object.keys(logged), ...epochs.flatMap((epoch) => Object.keys(epoch.logs ?? {}))])];
  const plain = names.filter((name) => !name.startsWith("val_") || !names.includes(name.slice(4)));
  $("curves-empty").hidden = plain.length > 0;
  plain.forEach((name, number) => {
    let curve = curves.get(name);
    if (!curve) {
      const frame = document.createElement("figure"), canvas = document.createElement("canvas"), caption = document.createElement("figcaption");
      canvas.className = "plot";
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      canvas.dataset.curve = name;
      frame.append(caption, canvas);
      $("curves").append(frame);
      curve = { caption, plot: new Plot(canvas, { title: `${name} by step`, xUnit: count }) };
      curve.plot.xName = "step";
      curves.set(name, curve);
    }
    const points = new Map();
    const put = (step, key, value) => {
      if (!isNumber(step) || value === undefined || value === null) return;
      points.set(step, { ...points.get(step), [key]: value });
    };
    (logged[name] ?? []).forEach((value, at) => put(steps[at], "train", value));
    let total = 0;
    for (const epoch of epochs) {
      total = stepAt(series, epoch.time) ?? total + (epoch.steps ?? 0);
      if (!(name in logged)) put(total, "train", epoch.logs?.[name]);
      put(total, "val", epoch.logs?.[`val_${name}`]);
    }
    const x = [...points.keys()].sort((a, b) => a - b), of = (key) => x.map((step) => points.get(step)[key] ?? null);
    const lines = [{ name, colour: LINES[number % LINES.length], values: of("train") }];
    if (names.includes(`val_${name}`)) lines.push({ name: `val_${name}`, colour: "c3", dashed: true, values: of("val") });
    curve.plot.set(x, lines, recoveries.filter((one) => isNumber(one.step)).map((one) => ({ x: one.step })));
    const last = (line) => figure(line.values.findLast((value) => isNumber(asNumber(value))), 4);
    key(curve.caption, lines.map((line) => ({ ...line, value: last(line) })));
  });
}

// The step that had been reached at a time.
function stepAt({ time = [], step = [] } = {}, when) {
  let at = time.length - 1;
  while (at >= 0 && (time[at] > when || !isNumber(step[at]))) at -= 1;
  return at < 0 ? null : step[at];
}

// A plot's legend: colour, name, value.
function key(node, entries) {
  const text = entries.map((entry) => `${entry.name} ${entry.value}`).join("|");
  if (node.dataset.text === text) return;
  node.dataset.text = text;
  node.replaceChildren(...entries.map((entry) => {
    const item = document.createElement("span"), swatch = document.createElement("i"), value = document.createElement("b");
    swatch.className = entry.dashed ? "dash" : "";
    swatch.style[entry.dashed ? "borderTopColor" : "background"] = `var(--${entry.colour})`;
    value.textContent = entry.value;
    item.append(swatch, `${entry.name} `, value);
    return item;
  }));
}

// The points that tell of steps. An epoch's end, between two of them, is no gap; a pause of the training is one.
function ofSteps(series) {
  const all = series?.time ?? [], kept = [...all.keys()].filter((at) => isNumber(series.step_seconds[at]));
  const apart = kept.slice(1).map((at, before) => all[at] - all[kept[before]]).sort((a, b) => a - b);
  const pause = Math.max(10, 5 * (apart[apart.length >> 1] ?? 0)), rows = [];
  for (const at of kept) {
    const before = rows.at(-1);
    if (before !== undefined && all[at] - all[before] > pause) rows.push(null, at); else rows.push(at);
  }
  const time = rows.map((at, row) => (at === null ? (all[rows[row - 1]] + all[rows[row + 1]]) / 2 : all[at]));
  return { time, values: (name) => rows.map((at) => (at === null ? null : series[name]?.[at] ?? null)) };
}

function showSpeed({ series, training, started }) {
  const { time, values } = ofSteps(series);
  for (const plot of [throughput, split]) {
    plot.origin = started ?? time[0] ?? 0;
    plot.xUnit = duration;
    plot.xName = "after";
  }
  throughput.set(time, [{ name: "samples/s", colour: "c0", values: values("samples_per_second") }]);
  split.set(time, PARTS.map((name) => ({ name, colour: name, values: values(name) })));
  key($("split-key"), PARTS.map((name) => ({ name, colour: name, value: seconds(training?.split?.[name]) })));
}

function showGoodput({ goodput }) {
  const parts = Object.entries(goodput?.parts ?? {}).filter(([, value]) => value > 0);
  const whole = parts.reduce((sum, [, value]) => sum + value, 0), node = $("goodput");
  if (!node.children.length) {
    const stack = document.createElement("div"), legend = document.createElement("div");
    stack.className = "stack";
    stack.setAttribute("role", "img");
    legend.className = "key";
    node.append(stack, legend);
  }
  const [stack, legend] = node.children;
  stack.setAttribute("aria-label", whole ? parts.map(([name, value]) => `${name} ${percent(value / whole)}`).join(", ") : "Nothing yet");
  while (stack.children.length < parts.length) stack.append(document.createElement("i"));
  while (stack.children.length > parts.length) stack.lastChild.remove();
  parts.forEach(([name, value], at) => {
    stack.children[at].style.width = `${(value / whole) * 100}%`;
    stack.children[at].style.background = `var(--${SPENT[name] ?? "other"})`;
  });
  key(legend, parts.map(([name, value]) => ({ name, colour: SPENT[name] ?? "other", value: duration(value) })));
}

// The plots' numbers, for who cannot see them; made when asked for.
function showTables() {
  if (!$("numbers").open) return;
  const tables = [...[...curves].map(([name, { plot }]) => [name, plot]), ["Throughput", throughput], ["Where a step's time goes", split]];
  $("tables").replaceChildren(...tables.map(([title, plot]) => {
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    table.createCaption().textContent = title;
    for (const name of [plot.xName ?? "", ...plot.lines.map((line) => line.name)]) {
      head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
    }
    const every = Math.max(1, Math.ceil(plot.x.length / 50));
    plot.x.forEach((x, at) => {
      if (at % every && at !== plot.x.length - 1) return;
      const row = body.insertRow();
      row.insertCell().textContent = plot.xUnit(x - (plot.origin ?? 0));
      for (const line of plot.lines) row.insertCell().textContent = plot.unit(line.values[at]);
    });
    return table;
  }));
}

let view = {}, shown = {}, due = false, heatAsked = 0, updates = 0;

function render() {
  due = false;
  const changed = (...keys) => keys.some((name) => view[name] !== shown[name]);
  showHead(view);
  if (changed("failure")) showFailure(view);
  if (changed("stragglers")) showSlow(view);
  if (changed("successors", "changes", "tasks", "ended")) showSuccessors(view);
  timeline.set(view);
  if (changed("series", "epochs", "recoveries")) showCurves(view);
  if (changed("series", "training")) showSpeed(view);
  if (changed("goodput")) showGoodput(view);
  if (changed("tasks")) {
    workers.set(view.tasks ?? []);
    if (heatAsked && view.live) heat.add(view.now, view.tasks ?? []);
  }
  shown = view;
  if (!updates) performance.mark("tfrun-rendered");
  document.body.dataset.updates = String((updates += 1));
}

async function askHeat() {
  heatAsked = Date.now();
  const answer = await fetch("status?heat=1");
  if (answer.ok) heat.set((await answer.json()).heat ?? { tasks: [], time: [], own: [], step: [] });
}

function changed(told) {
  if (shown.started && told.started !== shown.started) timeline.reset(); // the next job in this directory
  view = told;
  if (!due) { due = true; requestAnimationFrame(render); }
  if (!heatAsked) askHeat();
}

function redraw() {
  shown = {};
  render();
  heat.paint();
}

const stream = new Stream(changed, (state) => {
  const ended = view.ended;
  $("connection").dataset.lost = String(state === "lost");
  write("connection", state === "lost" ? "Connection lost; trying again" : state === "over" || ended ? "The job has ended" : view.live === false ? "From the run directory" : "Live");
  if (state === "lost") heatAsked = 0; // what was missed is asked for again
});

let ticks = 0;
setInterval(() => {
  if (document.hidden) return;
  if ($("log-follow").checked) logs.more();
  if (ticks++ % 5 === 0) { logs.list(); showTables(); }
}, 1000);
logs.list();
for (const input of document.querySelectorAll("input[name=heat]")) input.addEventListener("change", () => heat.show(input.value));
$("numbers").addEventListener("toggle", showTables);
onThemeChange(redraw);
let resized = 0;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 100); });
