"""A machine of a job on three hosts crashes or is cut off: seconds to the others' first new step.

And what noticing takes of them. The hosts are network namespaces of this machine; needs root and
what tests/hosts needs.

    lost_machines.py [FAULTS [MODEL]]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_place
from harness import SCRIPTS, numbers, record

TESTS = Path(__file__).parents[1] / "tests"
MODELS = ("tiny", "resnet50")
SECONDS, EPOCHS, MADE = 240.0, 100_000, 8
# The hosts have one file system, and each counts its processes for itself.
SCRIPT = f"""
import os, pathlib, runpy, socket, sys
folder = pathlib.Path(os.environ["BENCH_STEPS"], socket.gethostname())
folder.mkdir(exist_ok=True)
os.environ["BENCH_STEPS"] = str(folder)
sys.path.insert(0, {str(SCRIPTS)!r})
sys.argv = ["in_place.py", *sys.argv[1:]]
runpy.run_path({str(SCRIPTS / "in_place.py")!r}, run_name="__main__")
"""


def main(faults: int = 6, *only: str) -> None:
    sys.path[:0] = [str(TESTS), str(TESTS / "hosts")]
    from machines import REASON, Hosts, Lab

    if REASON:
        return record("a machine is lost", "s", {}, not_run={"three hosts": REASON})
    for model in only or MODELS:
        for kind in ("crash", "cut"):
            with tempfile.TemporaryDirectory() as folder:
                lab = Lab(Path(folder), 3)
                try:
                    lab.up()
                    work = Path(folder, "work")
                    work.mkdir()
                    found = under(Hosts(lab, work), model, kind, faults)
                finally:
                    lab.down()
            record(
                f"a machine is lost by a {kind}: {model}, 3 hosts",
                "s",
                {
                    "to the first new step": numbers([one["seconds"] for one in found]),
                    "of it until it is noticed": numbers([one["noticed"] for one in found]),
                    "one step then": numbers([one["step"] for one in found]),
                    "longest step as it comes back": numbers([one["takeover"] for one in found]),
                },
            )


def under(hosts: Any, model: str, kind: str, faults: int) -> list[dict[str, float]]:
    """One fault after the other, of n2 and n3 by turns, each once all have trained together."""
    steps = hosts.directory / "steps"
    steps.mkdir()
    hosts.environment["BENCH_STEPS"] = str(steps)
    many = ("-H", "n1,n2,n3", "-n", "2:3", "--replicas", "3", "--in-place", "--env", "BENCH_STEPS")
    options = (*many, "--max-restarts", "1000", "--threads-per-worker", "1", "--run-dir", "run")
    process = hosts.start(SCRIPT, *options, "train.py", model, str(EPOCHS), "0", script=())

    def until(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := condition()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{model}, {kind}: it does not go on\n{hosts.said[-4000:]}")
            time.sleep(0.02)
        return found

    try:
        return [_fault(hosts, steps, kind, f"n{2 + i % 2}", until) for i in range(faults)]
    finally:
        hosts.kill(process)


def _fault(
    hosts: Any, steps: Path, kind: str, name: str, until: Callable[[Callable[[], Any]], Any]
) -> dict[str, float]:
    def last(host: str) -> list[in_place.Line]:
        files = sorted((steps / host).glob("*.txt"), key=lambda path: path.stat().st_mtime)
        return in_place._lines(files[-1].parent, int(files[-1].stem[6:])) if files else []

    def together() -> int:
        """The newest round, when all three have made some steps in it."""
        lines = [last(host) for host in hosts.lab.names]
        rounds = {found[-1][2] if found else -1 for found in lines}
        made = all(len(found) >= MADE and found[-MADE][2] == found[-1][2] for found in lines)
        return made and len(rounds) == 1 and rounds.pop() + 1

    before = until(together) - 1
    left = [host for host in hosts.lab.names if host != name]
    now = time.time()
    getattr(hosts.lab, kind)(name)
    until(lambda: all(len([1 for at in last(h) if at[2] > before]) > MADE for h in left))
    lines = {host: last(host) for host in left}
    new = [next(line for line in found if line[2] > before) for found in lines.values()]
    times = [line[0] for line in lines[left[0]] if line[2] == new[0][2]][1:MADE]
    noticed = next(e["time"] for e in hosts.events("failure") if e["time"] > now)
    (hosts.lab.boot if kind == "crash" else hosts.lab.plug_in)(name)
    grown = until(lambda: together() > new[0][2] + 1 and together()) - 1
    return {
        "seconds": max(line[0] for line in new) - now,
        "noticed": noticed - now,
        "step": statistics.median(b - a for a, b in itertools.pairwise(times)),
        "takeover": max(in_place._longest(last(host), grown) for host in left),
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
