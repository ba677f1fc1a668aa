// Numbers, times and sizes as people read them.

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// A loss that is no number travels as text.
export const asNumber = (value) =>
  typeof value === "string" ? Number(value) : value === null || value === undefined ? NaN : value;

export function count(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en-US") : "–";
}

export function figure(value, digits = 3) {
  const number = asNumber(value);
  if (Number.isNaN(number)) return value === "NaN" ? "NaN" : "–";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  if (number !== 0 && (Math.abs(number) < 1e-3 || Math.abs(number) >= 1e6)) return number.toExponential(2);
  if (Math.abs(number) >= 1000) return count(number);
  return String(Number(number.toPrecision(digits)));
}

export function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${figure(value * 1e6)} µs`;
  if (value < 1) return `${figure(value * 1e3)} ms`;
  return `${figure(value)} s`;
}

export function duration(value) {
  if (!isNumber(value)) return "–";
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => whole >= size);
  return parts.slice(first, first + 2)
    .map(([size, unit], at) => [Math.floor((at ? whole % parts[first][0] : whole) / size), unit])
    .filter(([number], at) => number || !at)
    .map(([number, unit]) => `${number} ${unit}`).join(" ");
}

export function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${figure(value)} ${units[at]}`;
}

export function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

export const percent = (share) => (isNumber(share) ? `${Math.round(share * 100)} %` : "–");

export const taskName = (task) => task.replace(":", " ");

export const logName = (task) => `${task.replaceAll(":", "-")}.log`;

// "1 worker", "2 workers".
export const some = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
