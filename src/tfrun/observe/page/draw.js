// A canvas that is sharp on every screen, the page's colours, and what all plots share.

const style = getComputedStyle(document.documentElement);
const cache = new Map();

export function colour(name) {
  let value = cache.get(name);
  if (!value) cache.set(name, (value = style.getPropertyValue(`--${name}`).trim()));
  return value;
}

export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

export function onThemeChange(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    cache.clear();
    redraw();
  });
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

// Returns a cleared context in CSS pixels, with width and height; null while it is not shown.
export function begin(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width || !height) return null;
  const scale = window.devicePixelRatio || 1;
  const wide = Math.round(width * scale), high = Math.round(height * scale);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  return { context, width, height };
}

// Round numbers from low to high, at most `most` of them.
export function ticks(low, high, most = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * size).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found;
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

// The same for durations in seconds, which people divide otherwise.
export function timeTicks(low, high, most = 4) {
  const rough = (high - low) / most;
  if (rough < 1 || rough > SPANS.at(-1)) return ticks(low, high, most);
  const step = SPANS.find((one) => one >= rough), found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(at * step);
  return found;
}

// Sets what a screen reader says of a plot.
export function describe(canvas, text) {
  if (canvas.getAttribute("aria-label") !== text) canvas.setAttribute("aria-label", text);
}

const tip = document.getElementById("tip");

export function showTip(text, x, y) {
  tip.hidden = false;
  if (tip.textContent !== text) tip.textContent = text;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(4, x + 14), innerWidth - box.width - 4);
  const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(4, top))}px)`;
}

export function hideTip() {
  tip.hidden = true;
}

const said = document.getElementById("said");

// Has a screen reader say it: for what the keyboard has chosen in a plot.
export function say(text) {
  said.textContent = text;
}

// Calls `at(x, y)` for the pointer over a canvas, `keys(key)` for arrow keys; both return a text.
export function explore(canvas, { at, keys, leave }) {
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const text = at(event.clientX - box.left, event.clientY - box.top);
    if (text) showTip(text, event.clientX, event.clientY);
    else hideTip();
  });
  const gone = () => { hideTip(); if (leave) leave(); };
  canvas.addEventListener("pointerleave", gone);
  canvas.addEventListener("blur", gone);
  canvas.addEventListener("keydown", (event) => {
    const found = keys(event.key);
    if (!found) return;
    event.preventDefault();
    say(found.text);
    const box = canvas.getBoundingClientRect();
    showTip(found.text, box.left + found.x, box.top + found.y);
  });
}
