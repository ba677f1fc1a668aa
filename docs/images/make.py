"""Makes the README's pictures from a real run: a worker is killed, and the job recovers.

    python docs/images/make.py           writes recovery.svg and page.png beside this file

It trains examples/digits.py on two workers, kills worker 1 in the fifth epoch as `kill -9` does,
and draws what was printed. The picture of the page is taken by Chromium, while the job runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TFRUN = str(Path(sys.executable).with_name("tfrun"))
EPOCHS, DIES_IN = 8, 5
COLUMNS = 130
SECONDS = 300.0
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\?key=\S+")


def record(folder: Path) -> list[str]:
    """Runs the job, kills a worker, has the page drawn; returns the lines that were printed."""
    command = [TFRUN, "-n", "2", "--page", "examples/digits.py", "--epochs", str(EPOCHS)]
    run = folder / "digits"
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TFRUN_RUN_DIR": str(run)}
    job = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    guard = threading.Timer(SECONDS, job.kill)
    guard.start()
    lines: list[str] = [f"$ tfrun -n 2 examples/digits.py --epochs {EPOCHS}"]
    link, killed, recovered = "", False, False
    assert job.stdout is not None
    try:
        for line in job.stdout:
            if found := LINK.search(line):
                link = found[0]
                continue  # its key is nobody's business, and the picture has no --page
            shown = line.rstrip().replace(str(run), "tfrun-runs/digits")
            is_overwritten = "━" in shown and "val_" not in shown  # on a terminal, by the next bar
            if shown and not is_overwritten:
                lines.append(shown)
            if not killed and line.startswith(f"Epoch {DIES_IN}/"):
                pid = pid_of(run)
                os.kill(pid, signal.SIGKILL)
                lines.append(f"{'':60}# in another terminal: kill -9 {pid}")
                killed = True
            if killed and not recovered and line.startswith(f"Epoch {DIES_IN + 1}/"):
                recovered = True
                draw_page(link)
        if job.wait() != 0 or not recovered:
            sys.exit("\n".join(["the run is not what the picture is to show:", *lines]))
    finally:
        guard.cancel()
        with contextlib.suppress(ProcessLookupError):
            job.terminate()
    return lines


def pid_of(run: Path) -> int:
    """The process of worker 1."""
    status = subprocess.run(
        [TFRUN, "status", "--json", str(run)], capture_output=True, text=True, check=True
    )
    tasks = json.loads(status.stdout)["tasks"]
    return next(task["pid"] for task in tasks if task["task"] == "worker:1")


def draw_page(link: str) -> None:
    """Writes page.png."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1180,900"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.get(link)
        deadline = time.monotonic() + 20
        drawn = "return document.querySelectorAll('canvas').length > 3"
        while not driver.execute_script(drawn) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5)  # nothing says when the curves' last points are drawn
        driver.save_screenshot(str(HERE / "page.png"))
    finally:
        driver.quit()


def draw(lines: list[str]) -> str:
    """Returns the SVG of a terminal with these lines; what tfrun says stands out."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        text = Text.from_ansi(line)
        if line.startswith("$ "):
            text.stylize("bold")
        elif "kill -9" in line:
            text.stylize("bold red")
        elif line.startswith("tfrun:"):
            text.stylize("cyan")
        console.print(text, no_wrap=True, overflow="crop")
    svg = console.export_svg(title="tfrun", theme=MONOKAI, unique_id="tfrun")
    # rich names a font of a remote server; the reader's own will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = record(Path(folder))
    (HERE / "recovery.svg").write_text(draw(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
