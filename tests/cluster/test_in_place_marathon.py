"""--in-place: one job whose workers die all the time, alone and in pairs, while others join.

It ends with the bits of an undisturbed one and an exact ledger, and no process of it has grown.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "in_place_marathon.py"
EPOCHS = int(os.environ.get("TFRUN_TEST_EPOCHS", "80"))
SECONDS, LEAST_DEATHS = max(600, 2 * EPOCHS), EPOCHS // 4
PAUSE, SETTLED = 0.03, 6
OPTIONS = ("-n", 3, "--replicas", 3, "--in-place", "--spares", 1, "--threads-per-worker", 1)
TOLD = {"AUTOGRAPH_VERBOSITY": "0", "TF_CPP_MIN_LOG_LEVEL": "2", "EPOCHS": str(EPOCHS)}


class Watched:
    """A running job, as its events and the system tell of it."""

    def __init__(self, launcher: int, events: Path) -> None:
        self._launcher, self._path, self._read = launcher, events, 0
        self.events: list[dict[str, Any]] = []

    def look(self) -> None:
        with self._path.open() as file:
            file.seek(self._read)
            lines = file.readlines()
        whole = [line for line in lines if line.endswith("\n")]
        self._read += sum(len(line.encode()) for line in whole)
        self.events += [json.loads(line) for line in whole]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def round(self) -> int:
        return max(event["number"] for event in self.of("round"))

    @property
    def workers(self) -> dict[str, int]:
        """The processes of the newest round."""
        started = [event for event in self.of("worker_started") if event["round"] == self.round]
        return {event["task"]: event["pid"] for event in started}

    @property
    def steps(self) -> bool:
        """Whether the newest round has made a step."""
        kinds = ("recovered", "grown", "machine_preempted")
        return any(e["round"] == self.round for e in self.events if e["event"] in kinds)

    @property
    def successors(self) -> dict[str, tuple[str, int]]:
        """The state and the process of each that is there."""
        found: dict[str, tuple[str, int]] = {}
        for event in self.of("successor"):
            name, state = event["successor"], event["state"]
            if state == "started":
                found[name] = (state, event["pid"])
            elif state == "ready":
                found[name] = (state, found[name][1])
            else:
                found.pop(name, None)
        return found

    def held(self) -> dict[str, Counter[str]]:
        """What those hold that live on: the launcher, its agent, the zygote, the chief."""
        launcher = psutil.Process(self._launcher)
        (agent,) = [child for child in launcher.children() if "agent" in " ".join(child.cmdline())]
        chief = psutil.Process(self.workers["worker:0"])
        named = {"launcher": launcher, "agent": agent, "chief": chief}
        if (zygote := chief.parent()) != agent and zygote is not None:
            named["zygote"] = zygote
        found = {
            name: Counter(
                {
                    "descriptors": process.num_fds(),
                    "threads": process.num_threads(),
                    "MiB": process.memory_info().rss >> 20,
                }
            )
            for name, process in named.items()
        }
        links = (str(link.readlink()) for link in Path(f"/proc/{agent.pid}/fd").iterdir())
        (state,) = {"/".join(link.split("/")[:4]) for link in links if "/tfrun-" in link}
        files = [path for path in Path(state).rglob("*") if path.is_file()]
        found["memory"] = Counter(
            {"files": len(files), "KiB": sum(f.stat().st_size for f in files) >> 10}
        )
        return found


def victims(job: Watched, turn: int, chance: random.Random) -> Iterator[tuple[float, int]]:
    """Yields whom to kill now, each so many seconds after the one before."""
    others = [pid for task, pid in job.workers.items() if task != "worker:0"]
    waiting = [pid for _, pid in job.successors.values()]
    kind = turn % 6
    if turn == 1:  # the chief, once: the next one is who is watched
        yield 0.0, job.workers["worker:0"]
    elif kind in (0, 1) or not others:
        yield 0.0, chance.choice(others or waiting)
    elif kind == 2:
        yield from ((0.0, pid) for pid in others)
    elif kind == 3:  # the next one while the round forms
        yield 0.0, others[0]
        yield from ((chance.uniform(0, 0.3), pid) for pid in others[1:])
    elif kind == 4 and waiting:
        yield 0.0, chance.choice(waiting)
        yield 0.0, others[0]
    else:
        yield 0.0, chance.choice(others)


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
def test_deaths_in_a_row_change_no_bit_and_nothing_grows(jobs: Jobs) -> None:
    plain = jobs.run("-n", 1, "--replicas", 3, *OPTIONS[-2:], SCRIPT, env=TOLD, timeout=SECONDS)
    (wanted,) = re.findall("BITS .*", plain.stdout)
    options = ("--run-dir", "run", "--ledger", "--max-restarts", 6)
    said = jobs.directory / "said"  # a pipe that nobody reads is full after two hundred deaths
    with said.open("w") as file:
        told = {**TOLD, "PAUSE": str(PAUSE)}
        process = jobs.start(*OPTIONS, *options, SCRIPT, env=told, stderr=file)
    chance, deaths, turn = random.Random(7), 0, 0
    events = jobs.directory / "run" / "events.jsonl"
    held: list[dict[str, Counter[str]]] = []
    try:
        until = time.monotonic() + SECONDS
        while not events.exists() or '"first_step"' not in events.read_text():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        job = Watched(process.pid, events)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
            job.look()
            whole = len(job.workers) == 3 and (job.steps or not job.round) and job.successors
            if job.of("job_ended") or not whole:
                continue
            if turn in (SETTLED, 2 * SETTLED) or (turn > SETTLED and turn % 10 == 0):
                held.append(job.held())
            for seconds, pid in victims(job, turn, chance):
                time.sleep(seconds)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                deaths += 1
            turn, number = turn + 1, job.round
            while job.round == number and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
                job.look()
                if not job.successors and job.of("job_ended"):
                    break
    finally:
        if process.poll() is None:
            process.kill()
        out, err = process.communicate(timeout=30)[0], said.read_text()
    print(deaths, turn, held[0] if held else "", held[-1] if held else "")
    assert process.returncode == 0, err[-4000:]
    assert re.findall("BITS .*", out) == [wanted]
    assert deaths >= LEAST_DEATHS, deaths
    ledger = jobs.run("ledger", "run")
    assert "every sample exactly once" in ledger.stdout, ledger.stdout + ledger.stderr
    job.look()
    afresh = [e for e in job.events if e["event"] in ("recovered", "grown") and not e["in_place"]]
    assert not afresh and not sum(event["lost_steps"] or 0 for event in job.of("recovered"))
    first, last = held[0], held[-1]
    for name, counts in first.items():
        grown = last[name] - counts
        assert grown["descriptors"] <= 2, (name, grown)
        # An iterator of the round before has six of TensorFlow's threads until it is let go.
        assert grown["threads"] <= (6 if name == "chief" else 1), (name, grown)
        assert grown["files"] <= 3 and grown["MiB"] <= 30, (name, grown)
