// The end of a worker's log, and what comes.

const KEPT = 1 << 18; // characters that are kept

// As a terminal: of a line that was redrawn, its last state.
const lastState = (line) => line.replace(/\r+$/, "").replace(/^.*\r/s, "").replace(/\x1b\[[0-9;]*[A-Za-z]/g, "");

export class Logs {
  constructor({ select, follow, find, pre }) {
    Object.assign(this, { select, follow, find, pre, name: "", next: null, text: "" });
    select.addEventListener("change", () => {
      this.isChosen = true;
      this.open(select.value);
    });
    find.addEventListener("input", () => this.write());
    // Who scrolls up wants to read.
    pre.addEventListener("scroll", () => {
      if (pre.scrollTop + pre.clientHeight < pre.scrollHeight - 40 && !this.writing) follow.checked = false;
    });
    follow.addEventListener("change", () => this.write());
  }

  async list() {
    const answer = await fetch("logs");
    if (!answer.ok) return;
    const names = (await answer.json()).logs.map((log) => log.name);
    // Those who train first, then servers, agents and zygotes.
    const rank = (name) => [!/^(chief|worker)-\d+\.log$/.test(name), Number(/-(\d+)\.log$/.exec(name)?.[1] ?? 0)];
    names.sort((a, b) => rank(a)[0] - rank(b)[0] || a.replace(/\d+\.log$/, "").localeCompare(b.replace(/\d+\.log$/, "")) || rank(a)[1] - rank(b)[1]);
    if (names.join() !== [...this.select.options].map((option) => option.value).join()) {
      this.select.replaceChildren(...names.map((name) => new Option(name.replace(/\.log$/, ""), name)));
      if (this.name) this.select.value = this.name;
    }
    // The first worker's, as soon as there is one, until somebody chooses another.
    if (names.length && !this.isChosen && this.name !== names[0]) await this.open(names[0]);
  }

  async open(name, show = false) {
    Object.assign(this, { name, next: null, text: "", isChosen: this.isChosen || show });
    if (this.select.value !== name) this.select.value = name;
    this.decoder = new TextDecoder();
    this.follow.checked = true;
    await this.more();
    this.pre.setAttribute("aria-label", `The end of the log ${name}`);
    if (show) { this.pre.scrollIntoView({ block: "center" }); this.pre.focus({ preventScroll: true }); }
  }

  async more() {
    const name = this.name;
    if (!name || this.asking) return;
    this.asking = true;
    try {
      const answer = await fetch(`logs/${encodeURIComponent(name)}?${this.next === null ? "bytes=65536" : `start=${this.next}`}`);
      if (!answer.ok) { if (this.next === null) { this.text = ""; this.write(); } return; }
      const data = await answer.arrayBuffer();
      if (name !== this.name) return;
      const start = Number(answer.headers.get("X-Log-Start")), size = Number(answer.headers.get("X-Log-Size"));
      if (this.next !== null && size < this.next) { this.next = null; this.text = ""; return; } // another file by now
      const first = this.next === null;
      this.next = start + data.byteLength;
      if (!data.byteLength && !first) return;
      this.text = (this.text + this.decoder.decode(data, { stream: true })).slice(-KEPT);
      if (first && start) this.text = this.text.slice(this.text.indexOf("\n") + 1); // half a line
      this.write();
    } finally {
      this.asking = false;
      if (name !== this.name) this.more();
    }
  }

  write() {
    const wanted = this.find.value.toLowerCase();
    let lines = this.text.split("\n").map(lastState);
    if (wanted) lines = lines.filter((line) => line.toLowerCase().includes(wanted));
    this.writing = true;
    this.pre.textContent = lines.join("\n") || (this.name ? "(empty)" : "(no logs yet)");
    if (this.follow.checked) this.pre.scrollTop = this.pre.scrollHeight;
    requestAnimationFrame(() => { this.writing = false; });
  }
}
