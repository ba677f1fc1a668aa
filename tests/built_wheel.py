"""Builds the wheel from a clean export of the tree, for tests of what people install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from conftest import Jobs, wait_until
from docs_blocks import ROOT

SECONDS = 120
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/\?key=(\S+)")
# Each worker says where its tfrun is from, and the chief waits at the end until the page was seen.
SCRIPT = """
import os, time
import keras
import numpy as np
import tfrun

x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
model.fit(x, x.sum(1), batch_size=32, epochs=2, verbose=2)
print(f"rank {tfrun.world().rank} of {tfrun.world().size} has {tfrun.__file__}", flush=True)
deadline = time.monotonic() + 60
while not os.path.exists(os.environ["PAGE_SEEN"]) and time.monotonic() < deadline:
    time.sleep(0.05)
"""


def command(*words: object, cwd: Path, seconds: float = SECONDS) -> str:
    """Runs a command that has to succeed, without what this environment would add to it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "PYTHON"))}
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def tracked(under: str = "") -> list[str]:
    """The files that git knows or would add, relative to the repository."""
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", under or ".")
    return [name for name in command(*words, cwd=ROOT).splitlines() if (ROOT / name).is_file()]


def build(folder: Path) -> tuple[Path, Path]:
    """Builds in a copy of the tree, as `make wheel` does; returns the wheel and the archive.

    The wheel is made of the archive's files, so that one is whole as well.
    """
    export = folder / "export"
    for name in tracked():
        (export / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, export / name)
    command(sys.executable, "-m", "build", "--no-isolation", "-o", folder / "dist", cwd=export)
    shutil.rmtree(export)
    (wheel,) = (folder / "dist").glob("*.whl")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    return wheel, archive


def train_and_look(jobs: Jobs, tfrun: Path) -> tuple[str, dict[str, bytes]]:
    """Runs a job of two workers with this `tfrun`, and fetches all of its page while it runs.

    Returns:
      What the job has printed, and the page's parts by name: "/" and what that names.
    """
    script, seen = jobs.script(SCRIPT), jobs.directory / "seen"
    words = [str(tfrun), "-n", "2", "--log-all", "--page", str(script)]
    out = jobs.directory / "out.txt"
    with out.open("w") as file:
        env = {k: v for k, v in jobs.environment.items() if not k.startswith("PYTHONPATH")}
        env["PAGE_SEEN"] = str(seen)
        process: Any = subprocess.Popen(
            words, cwd=jobs.directory, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        wait_until(lambda: LINK.search(out.read_text()), "the link to the page", 60)
        address, key = LINK.search(out.read_text()).groups()  # type: ignore[union-attr]
        # The link gives a cookie, with which a browser gets the rest.
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{address}/?key={key}", timeout=20) as answer:
            parts = {"/": answer.read()}
        names = re.findall(rb'(?:src|href)="(page/[\w.-]+)', parts["/"])
        while names:
            name = names.pop().decode()
            if name not in parts:
                with browser.open(f"{address}/{name}", timeout=20) as answer:
                    parts[name] = answer.read()
                names += [b"page/" + n for n in re.findall(rb'from "\./([\w.-]+)"', parts[name])]
        seen.touch()
        assert process.wait(SECONDS) == 0, out.read_text()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
    return out.read_text(), parts
