// The connection to the job: comes back by itself, and goes on where it was.

const FINAL = new Set(["finished", "failed", "preempted", "stopped", "lost"]);

// Calls `changed(view)` with the whole view, `state("live" | "lost" | "over")`.
export class Stream {
  constructor(changed, state) {
    Object.assign(this, { changed, state, view: {}, wait: 1000, drops: 0 });
    document.addEventListener("visibilitychange", () => {
      // A page that nobody sees asks for nothing.
      if (document.hidden) this.close();
      else this.open();
    });
    this.open();
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.again);
  }

  open() {
    if (this.source || document.hidden) return;
    const source = (this.source = new EventSource("stream?offset=end"));
    let isFirst = true;
    source.addEventListener("status", (message) => {
      const told = JSON.parse(message.data);
      this.view = isFirst ? told : { ...this.view, ...told };
      isFirst = false;
      this.wait = 1000;
      this.changed(this.view);
      this.state("live");
    });
    source.addEventListener("error", () => {
      source.close();
      this.source = null;
      this.drops += 1;
      if (FINAL.has(this.view.state)) return this.state("over");
      this.state("lost");
      this.again = setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(10_000, this.wait * 1.6);
    });
  }
}
