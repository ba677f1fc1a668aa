"""The live page of a job of 1,000 workers that has made 100,000 steps: ms in Chromium.

The events, the monitor that reads and sums them up, and the port are the real ones; the workers are
only numbers (tests/simulated_job.py). Goals: first paint in under 1 s, and an update each second
that is done in a part of it. tests/cluster/test_page_many.py counts what this times.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import numbers, record

TESTS = Path(__file__).parent.parent / "tests"
NAME, HEAP = "page of 1,000 workers", "memory of a page that stays open, 100 workers"
WORKERS, STEPS, LOADS, WATCHED_SECONDS = 1000, 100_000, 5, 20
TIMED = """
window.tasks = []; window.frames = []; window.last = performance.now();
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)))
  .observe({ type: "longtask" });
const next = (now) => { frames.push(now - last); last = now; requestAnimationFrame(next); };
requestAnimationFrame(next);
"""
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
RENDERED = "return performance.getEntriesByName('tfrun-rendered')[0]?.startTime"
STEP = """
const cell = [...document.querySelectorAll('#figures div')]
  .find((cell) => cell.firstChild.textContent === 'step');
return Number(cell?.lastChild.textContent.replaceAll(',', '')) || 0;
"""
FEW, PACE, MARKS = 100, 400, (30_000, 60_000, 100_000)  # of the job whose page stays open


def main() -> None:
    sys.path.insert(0, str(TESTS))
    import psutil

    from browser import CHROMIUM, DRIVER, MISSING, chromium
    from simulated_job import make_run

    if not (CHROMIUM and DRIVER):
        return record(NAME, "ms", {}, not_run={"Chromium": MISSING})
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        make_run(run, WORKERS, STEPS)
        command = [sys.executable, str(TESTS / "simulated_job.py"), run, WORKERS, STEPS]
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        try:
            assert job.stdout
            port, server = int(job.stdout.readline()), psutil.Process(job.pid)
            url = f"http://127.0.0.1:{port}/"
            with chromium() as browser:
                found: dict[str, list[float]] = {"first paint": [], "first whole picture": []}
                for _ in range(LOADS):
                    browser.driver.get(url)
                    browser.until(lambda: browser.js(RENDERED), "the page is drawn")
                    found["first paint"].append(browser.js(PAINTED))
                    found["first whole picture"].append(browser.js(RENDERED))
                time.sleep(3)
                browser.js(TIMED)
                cpu = sum(server.cpu_times()[:2])
                time.sleep(WATCHED_SECONDS)
                cpu = sum(server.cpu_times()[:2]) - cpu
                frames = browser.js("return frames")
                busy = browser.js("return tasks.reduce((a, b) => a + b, 0)") / WATCHED_SECONDS
                found["longest time without a frame"] = [max(frames)]
                found["the page's work above 50 ms, each second"] = [busy]
                found["the controller's work each second"] = [1000 * cpu / WATCHED_SECONDS]
                nodes = browser.js("return document.querySelectorAll('*').length")
            rss = server.memory_info().rss / 2**20
        finally:
            job.kill()
            job.wait()
    print(f"median frame {statistics.median(frames):.1f} ms, {nodes} elements, ", end="")
    print(f"controller {rss:.0f} MiB")
    results = {name: numbers(values) for name, values in found.items()}
    record(NAME, "ms", results)
    record(HEAP, "MiB", heaps())


def heaps() -> dict[str, dict[str, float]]:
    """What an open page holds while its job makes 100,000 steps, in the time of a few."""
    import psutil

    from browser import chromium
    from simulated_job import make_run

    found = {}
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        make_run(run, FEW, 0)
        command = [sys.executable, TESTS / "simulated_job.py", run, FEW, 0, PACE]
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        try:
            assert job.stdout
            url = f"http://127.0.0.1:{int(job.stdout.readline())}/"
            with chromium() as browser:
                browser.driver.get(url)
                for steps in MARKS:
                    browser.until(lambda at=steps: browser.js(STEP) >= at, f"{steps} steps", 200)
                    found[f"page, {steps:,} steps"] = numbers([browser.heap() / 2**20])
                    rss = psutil.Process(job.pid).memory_info().rss / 2**20
                    found[f"controller, {steps:,} steps"] = numbers([rss])
        finally:
            job.kill()
            job.wait()
    return found


if __name__ == "__main__":
    main()
