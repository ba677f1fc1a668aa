"""The page of a thousand workers that are only numbers: what it makes is counted, not timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from browser import chromium, kept
from simulated_job import SLOW, make_run

WORKERS, STEPS = 1000, 20_000
# Counts what is added to the page.
COUNTED = """
window.added = 0;
new MutationObserver((records) => {
  for (const record of records) added += record.addedNodes.length;
}).observe(document.body, { subtree: true, childList: true });
"""
UPDATES = "return Number(document.body.dataset.updates)"


def test_a_thousand_workers_cost_no_thousand_elements(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with chromium() as browser:
        make_run(run, WORKERS, STEPS)
        script = Path(__file__).parents[1] / "simulated_job.py"
        command = [sys.executable, script, run, WORKERS, STEPS]
        job = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
        try:
            assert job.stdout
            browser.screen(1360, 900)
            browser.driver.get(f"http://127.0.0.1:{int(job.stdout.readline())}/")
            name = f"worker {SLOW}"
            browser.until(lambda: browser.text("#state-text") == "training", "it trains")
            browser.until(lambda: name in browser.text("#slow"), "the straggler is named")
            heat = "return document.querySelector('#heat').getAttribute('aria-label') ?? ''"
            browser.until(lambda: name in browser.js(heat), "it is in the heat map")
            browser.settle()
            elements = browser.js("return document.querySelectorAll('*').length")
            assert elements < 2200  # 1,000 names of logs, and at most 300 events
            assert browser.js("return document.querySelectorAll('.card').length") == 0
            before = browser.js(UPDATES)
            browser.js(COUNTED)
            browser.until(lambda: browser.js(UPDATES) >= before + 5, "five updates")
            added, updates = browser.js("return added"), browser.js(UPDATES) - before
            assert added < 40 * updates, (added, updates)  # values of legends
            assert browser.js("return document.querySelectorAll('*').length") < elements + 60
            plots = browser.plots()
            for plot in ("tiles", "heat", "throughput", "split", "loss", "timeline"):
                assert plots[plot]["drawn"] > 0.005 and plots[plot]["colours"] > 5, plot
                assert plots[plot]["wide"] > 0.6 and plots[plot]["high"] > 0.5, plot
            assert "1,000 workers, 1,000 running" in plots["tiles"]["label"]
            # One row of the heat map is of another colour: where the straggler is.
            rows = browser.js(ROWS)
            odd = [at for at, far in enumerate(rows) if far > 60]
            expected = SLOW / WORKERS * len(rows)
            assert odd and all(abs(at - expected) < 3 for at in odd), (odd, expected)
            kept(browser.picture(), "thousand")
            assert browser.accessibility() == []
            assert browser.problems() == []
        finally:
            job.kill()
            job.communicate(timeout=20)


# Of each row of the heat map's pixels: how far its colour is from the usual one, 0 to 255.
ROWS = """
const canvas = document.querySelector("#heat"), { width, height } = canvas;
const at = Math.floor(width * 0.7), high = height - 20;
const pixels = canvas.getContext("2d").getImageData(at, 0, 1, high).data;
const row = (y) => [0, 1, 2].map((i) => pixels[y * 4 + i]);
const usual = [0, 1, 2].map((i) => Array.from({ length: high }, (_, y) => row(y)[i])
  .sort((a, b) => a - b)[Math.floor(high / 2)]);
return Array.from({ length: high }, (_, y) =>
  Math.max(...row(y).map((value, i) => Math.abs(value - usual[i]))));
"""
