"""The live page in a real Chromium: one job that trains, loses a worker, and fails in the end.

A spare takes the worker's place, and the other one stays in its process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, Cable, chromium, kept
from conftest import Jobs, wait_until

SCRIPT = Path(__file__).parent / "scripts" / "watched.py"
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+)")
PLOTS = ("timeline", "throughput", "split", "heat", "heat-key", "loss", "mae")
ORDER = [
    *("A skip", "CANVAS timeline", "OL events", "CANVAS loss", "CANVAS mae"),
    *("CANVAS throughput", "CANVAS split", "BUTTON worker 0", "BUTTON worker 1", "INPUT heat"),
    *("CANVAS heat", "SELECT log-name", "INPUT log-follow", "INPUT log-find", "PRE log"),
    *("A status", "A events", "A metrics", "SUMMARY The plots as tables"),
]
FOCUSED = """
const e = document.activeElement;
return `${e.tagName} ${e.id || e.dataset.curve || e.name || e.className || e.textContent}`;
"""


class Output:
    """What a running job prints."""

    def __init__(self, process: Any) -> None:
        self.text = ""
        self._threads = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any) -> None:
        with stream:
            for line in stream:
                self.text += line

    def close(self) -> None:
        """Waits for the last of it."""
        for thread in self._threads:
            thread.join(10)

    def link(self) -> tuple[int, str]:
        """The port and the key of the last link that was printed."""
        wait_until(lambda: LINK.search(self.text), "the link is printed", 60)
        port, key = LINK.findall(self.text)[-1]
        return int(port), key


def step(browser: Browser) -> int:
    """The step that the page shows; 0 before the first."""
    cell = browser.js(
        "return [...document.querySelectorAll('#figures div')]"
        ".find(cell => cell.firstChild.textContent === 'step')?.lastChild.textContent"
    )
    return int(cell.replace(",", "")) if cell and cell[0].isdecimal() else 0


def check_plots(browser: Browser) -> None:
    """None is blank, and none is drawn into a corner only."""
    plots = browser.plots()
    assert set(PLOTS) <= set(plots), plots.keys()
    for name in PLOTS:
        plot = plots[name]
        assert plot["drawn"] > 0.005 and plot["colours"] > 5, (name, plot)
        assert plot["wide"] > 0.6 and plot["high"] > 0.5, (name, plot)
        assert plot["label"], name
    assert "2 workers" in plots["heat"]["label"]
    assert "now" in plots["loss"]["label"] and "val_loss: now" in plots["loss"]["label"]


def check_keyboard(browser: Browser) -> None:
    """Everything is reached with Tab, in the order in which it stands, and read with arrows."""
    # Tab goes on from where the focus was last: from the beginning.
    browser.js("document.body.tabIndex = -1; document.body.focus(); scrollTo(0, 0)")
    browser.js("document.body.removeAttribute('tabindex')")
    found = []
    for _ in ORDER:
        browser.press("\ue004")
        found.append(browser.js(FOCUSED))
        if found[-1].startswith("CANVAS"):
            before = browser.text("#said")
            browser.press("\ue012")
            said = browser.until(lambda: browser.text("#said"), f"{found[-1]} says something")
            assert said and (said != before or "timeline" in found[-1]), found[-1]
            assert browser.js("return document.querySelector('#tip').hidden") is False
            shadow = browser.js("return getComputedStyle(document.activeElement).outlineStyle")
            assert shadow != "none"  # where the focus is can be seen
    assert found == ORDER
    browser.press("\ue007")  # Enter opens the tables
    browser.until(lambda: browser.text("#tables caption"), "the tables are there")
    assert browser.js("return document.querySelectorAll('#tables table').length") == 4
    assert browser.js("return document.querySelectorAll('#tables tbody tr').length") > 8


def check_looks(browser: Browser, name: str) -> None:
    """Nothing sticks out, nothing is inaccessible, and the picture is none of one colour."""
    for dark, phone in ((False, False), (True, False), (True, True), (False, True)):
        size = (390, 844) if phone else (1360, 900)
        browser.screen(*size, dark=dark, phone=phone)
        wide = browser.js("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], wide
        assert browser.accessibility() == []
        picture = browser.picture()
        kept(picture, f"{name}-{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}")
        ground = picture[2, 2].astype(int)
        assert (ground.mean() < 60) == dark
        drawn = (abs(picture.astype(int) - ground).max(axis=2) > 30).mean(axis=1)
        assert (drawn > 0).mean() > 0.3  # rows with something on them
        check_plots(browser)
    browser.screen(1360, 900)


def pids(events: Path, number: int) -> list[int]:
    found = [json.loads(line) for line in events.read_text().splitlines()]
    return [e["pid"] for e in found if e["event"] == "worker_started" and e["round"] == number]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_job_is_watched_from_its_first_step_to_its_failure(jobs: Jobs) -> None:
    files = jobs.directory / "files"
    files.mkdir()
    with chromium() as browser:
        job = jobs.start(
            *("--page", "--tensorboard", "boards", "-n", 2, "--run-dir", "run"),
            *("--replicas", 2, "--in-place", "--spares", 1, SCRIPT),
            env={"FILES": str(files), "TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"},
        )
        cable, output = None, Output(job)
        try:
            port, key = output.link()
            cable = Cable(port)
            watch(browser, jobs, files, cable, key)
            check_end(browser, jobs, cable)
            assert job.wait(30) == 1
            output.close()
            assert "the job failed" in output.text
        finally:
            job.kill()
            job.wait(30)
            output.close()
            if cable:
                cable.close()
        check_afterwards(browser, jobs)
    check_boards(jobs.directory / "boards" / "run")


def watch(browser: Browser, jobs: Jobs, files: Path, cable: Cable, key: str) -> None:
    run = jobs.directory / "run"
    browser.driver.get(f"http://127.0.0.1:{cable.port}/?key={key}")
    browser.until(lambda: browser.text("#state-text") == "training", "it trains", 60)
    browser.until(lambda: "val_loss" in browser.text("#curves"), "an epoch is over", 60)
    browser.until(lambda: step(browser) > 60, "60 steps")
    # The key is used up, and not to be seen any more; scripts cannot read the cookie.
    assert browser.js("return location.href").endswith("/")
    assert browser.js("return document.cookie") == ""
    assert browser.text("#connection") == "Live" and browser.text("#name") == "watched"
    assert browser.js("return document.querySelectorAll('.card').length") == 2
    assert re.search(r"memory\d+ MiB", browser.text(".card"))
    browser.until(lambda: "is over on worker 0" in browser.text("#log"), "the log's end is shown")
    browser.js("document.querySelectorAll('.card button')[1].click()")
    browser.until(lambda: "is over on worker 1" in browser.text("#log"), "another worker's log")
    check_looks(browser, "training")
    check_keyboard(browser)
    assert browser.problems() == []

    traced = jobs.run("profile", "run", "--steps", 5)
    assert traced.returncode == 0 and "traces of 2 workers" in traced.stdout, traced
    first, last = map(int, re.search(r"steps (\d+) to (\d+)", traced.stdout).groups())
    assert last - first == 4
    (traces,) = (run / "profile" / "plugins" / "profile").iterdir()
    found = {file.name: file.read_bytes() for file in traces.iterdir()}
    assert set(found) == {"worker-0.xplane.pb", "worker-1.xplane.pb"}
    assert all(b"/host:CPU" in data and len(data) > 10_000 for data in found.values())

    spare = "a successor of worker 1 on "
    browser.until(lambda: "is ready" in browser.text("#successors"), "a spare is ready", 120)
    assert spare in browser.text("#successors") and "stayed" not in browser.text("#successors")
    # What happens while the page is cut off is there when it comes back.
    cable.pull()
    browser.until(lambda: "lost" in browser.text("#connection"), "the page notices")
    before = step(browser)
    os.kill(pids(run / "events.jsonl", 0)[1], signal.SIGKILL)
    events = run / "events.jsonl"
    wait_until(lambda: '"recovered"' in events.read_text(), "the job goes on", 60)
    assert "SIGKILL" not in browser.text("#events")
    cable.put_in()
    browser.until(lambda: browser.text("#connection") == "Live", "the page comes back")
    browser.until(lambda: "SIGKILL" in browser.text("#events"), "what was missed is shown")
    browser.until(lambda: step(browser) > before, "the training goes on")
    assert "2 rounds, 1 in place" in browser.plots()["timeline"]["label"]
    said = browser.until(lambda: browser.text("#successors"), "who has stayed is shown")
    assert said.startswith("1 of 1 change in place · 1 of 2 workers stayed in their processes")
    hosts = browser.js(
        "return [...document.querySelectorAll('.card .host')].map((h) => h.textContent)"
    )
    assert ["since round 0" in host for host in hosts] == [True, False]
    browser.until(lambda: spare in browser.text("#successors"), "another one is on its way")
    (files / "fail").touch()


def check_end(browser: Browser, jobs: Jobs, cable: Cable) -> None:
    browser.until(lambda: browser.text("#state-text") == "failed", "the page sees the end", 60)
    report = browser.text("#failure")
    assert "TFRUN-401" in report and "worker 1 failed first" in report
    assert "there is <b>no</b> such shape" in browser.text("#failure-traceback")  # as text
    assert browser.js("return document.querySelector('#failure b')") is None
    browser.until(lambda: "ended" in browser.text("#connection"), "it says that this is the end")
    check_looks(browser, "failed")


def check_afterwards(browser: Browser, jobs: Jobs) -> None:
    """The same page shows the run from its directory."""
    serving = jobs.start("page", "run")
    output = Output(serving)
    try:
        port, key = output.link()
        browser.driver.get(f"http://127.0.0.1:{port}/?key={key}")
        browser.until(lambda: browser.text("#state-text") == "failed", "its end is shown")
        assert "worker 1 failed first" in browser.text("#failure")
        assert "SIGKILL" in browser.text("#events")
        browser.until(lambda: "such shape" in browser.text("#log") or select(browser, 1), "logs")
        browser.until(lambda: "val_loss" in browser.text("#curves"), "the curves are there")
        browser.screen(1360, 900)
        check_plots(browser)
        metrics = get(f"http://127.0.0.1:{port}/metrics")
        assert "tfrun_restarts_total 1" in metrics
        assert 'tfrun_round_changes_by_start_total{start="in_place"} 1.0' in metrics
    finally:
        serving.send_signal(signal.SIGINT)
        code = serving.wait(20)
        output.close()
    assert code == 0


def check_boards(folder: Path) -> None:
    """What TensorBoard reads: one writer in each folder, and the same loss from both."""
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"keras"}
    ours, theirs = (read(path) for path in (folder, folder / "keras" / "train"))
    by_epoch = {point.step: point.value for point in ours.Scalars("epoch/loss")}
    assert len(by_epoch) > 3
    from tensorboard.util.tensor_util import make_ndarray

    for event in theirs.Tensors("epoch_loss"):
        loss = make_ndarray(event.tensor_proto)
        assert loss == pytest.approx(by_epoch[event.step], rel=1e-5)
    assert {"samples per second/worker 1", "step/loss"} <= set(ours.Tags()["scalars"])
    validation = read(folder / "keras" / "validation")
    assert "evaluation_loss_vs_iterations" in validation.Tags()["tensors"]


def read(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of protobuf's generated code
        from tensorboard.backend.event_processing import event_accumulator

        found = event_accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
        found.Reload()
    return found


def select(browser: Browser, number: int) -> None:
    browser.js(
        "const select = document.querySelector('#log-name');"
        "if (select.options.length > arguments[0] && select.selectedIndex !== arguments[0]) {"
        "select.selectedIndex = arguments[0]; select.dispatchEvent(new Event('change')); }",
        number,
    )
