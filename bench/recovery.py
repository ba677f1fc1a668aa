"""SIGKILL of one of 2 workers: seconds to the first new step, steps redone, and what it costs.

Goals: the median of 20 kills is 1.5 s or less and no step is lost; the weights are those of an
undisturbed run, bit for bit; without faults a step takes less than 1 % longer.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness import SCRIPTS, compare, legacy_python, record

from tfrun.drill import events as reading
from tfrun.drill.job import Job

STEPS_AN_EPOCH = 50
# Steps that a worker which lives has to make between two kills: more than any epoch's rest, so
# that the kills fall on every place of an epoch.
BETWEEN = 31
RUN_SECONDS = 600.0
START_SECONDS = 60.0
POLL_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What a kill led to: seconds to the first new step, and how many steps were done again."""

    seconds: float
    redone: int


def main(kills: int = 20, legacy_kills: int = 5, repeats: int = 5) -> None:
    ours = under_tfrun(kills)
    theirs = under_tensorflow(legacy_kills)
    names = "tfrun, Keras 3", "restart + BackupAndRestore, legacy Keras"
    seconds = [[kill.seconds for kill in found] for found in (ours, theirs)]
    redone = [[float(kill.redone) for kill in found] for found in (ours, theirs)]
    results = dict(zip(names, map(_numbers, seconds), strict=True))
    a, b = (numbers["median"] for numbers in results.values())
    record("SIGKILL to first new step", "s", results, times_sooner=b / a)
    record("steps redone", "steps a kill", dict(zip(names, map(_numbers, redone), strict=True)))
    random_kills()
    costs = compare(
        {
            "recovery on": lambda: step_times(),
            "--max-restarts 0": lambda: step_times("--max-restarts", "0"),
            "workers keep no state": lambda: step_times(TFRUN_STATE_DIR=""),
        },
        repeats,
    )
    on, off, bare = (numbers["median"] for numbers in costs.values())
    record(
        *("a step without faults", "ms", costs),
        percent_over_max_restarts_0=100 * (on / off - 1),
        percent_over_no_state=100 * (on / bare - 1),
    )


# --- tfrun ------------------------------------------------------------------------------------


def under_tfrun(kills: int) -> list[Recovery]:
    """Kills the chief and the other worker by turns in one job; checks its weights at the end."""
    epochs = str((kills + 2) * BETWEEN // STEPS_AN_EPOCH + 1)
    wanted = None
    found: list[Recovery] = []
    for disturbed in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            options = ["-n", "2", "--seed", "1", str(SCRIPTS / "recovery.py"), "keras3", epochs]
            steps = {**harness._environment(), "BENCH_STEPS": folder}
            with Job(options, Path(folder, "run"), timeout=RUN_SECONDS, environment=steps) as job:
                if disturbed:
                    found = [_kill(job, Path(folder), number % 2) for number in range(kills)]
                if code := job.wait():
                    raise SystemExit(f"the job ended with {code}\n{job.log.read_text()[-4000:]}")
                weights = reading.weights(job.events())
        wanted = wanted or weights
        if not weights or weights != wanted:
            raise SystemExit(f"the weights are others: {weights}, not {wanted}")
    return found


def _kill(job: Job, folder: Path, rank: int) -> Recovery:
    """Kills a worker once both have made some steps, and waits for the first new one."""
    workers = job.until(lambda events: _both(reading.running(events), folder))
    if not workers:
        raise SystemExit("the job was over before all the kills")
    known, now = set(folder.glob("steps-*.txt")), time.time()
    if not job.send(workers[f"worker:{rank}"], signal.SIGKILL):
        raise SystemExit(f"worker {rank} had gone by itself")
    first = job.until(lambda _: _first(folder, known))
    if first is None:
        raise SystemExit("no new step followed")
    return _recovery(folder, known, now, first)


def _both(workers: Mapping[str, reading.Worker], folder: Path) -> Mapping[str, reading.Worker]:
    """Returns the workers when there are two that have made enough steps, else none."""
    lines = {int(path.stem.rpartition("-")[2]): steps for path, steps in _steps(folder)}
    ready = all(len(lines.get(worker.pid, ())) >= BETWEEN for worker in workers.values())
    return workers if len(workers) == 2 and ready else {}


def random_kills(workers: int = 4, kills: int = 30, epochs: int = 24) -> None:
    """`tfrun drill --faults random`: also while the job re-forms. Prints the seed."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        options = ["-n", str(workers), "--faults", "random", "--kills", str(kills)]
        options += ["--run-dir", f"{folder}/runs", "--json", str(found)]
        drill = subprocess.run(
            [Path(sys.executable).with_name("tfrun"), "drill", *options]
            + [SCRIPTS / "recovery.py", "keras3", str(epochs)],
            env={**harness._environment(), "BENCH_STEPS": folder},
            timeout=2 * RUN_SECONDS,
            check=False,
        )
        if drill.returncode:
            raise SystemExit(f"the drill ended with {drill.returncode}")
        (row,) = json.loads(found.read_text())["rows"]
    seconds = [number for number in row["first_steps"] if number is not None]
    name = f"random kills, {workers} workers, to first new step"
    record(name, "s", {f"{kills} kills in one job": _numbers(seconds)})


def step_times(*options: str, **environment: str) -> list[float]:
    """Milliseconds a step of each epoch but the first, on two pinned workers."""
    with tempfile.TemporaryDirectory() as folder:
        out = {"BENCH_OUT": f"{folder}/out", **environment}
        command = ["-n", "2", *options, str(SCRIPTS / "seed_cnn.py"), "keras3"]
        everything = {**harness._environment(), **out}
        with Job(command, Path(folder, "run"), timeout=RUN_SECONDS, environment=everything) as job:
            if code := job.wait():
                raise SystemExit(f"the job ended with {code}\n{job.log.read_text()[-4000:]}")
        return json.loads(Path(folder, "out").read_text())


# --- TensorFlow -------------------------------------------------------------------------------


def under_tensorflow(kills: int) -> list[Recovery]:
    """Two processes by hand, that are ended and started again by a supervisor when one dies."""
    python = legacy_python()
    # Each takes the job two epochs further at most.
    epochs = str(2 * kills + 20)
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = _start(python, epochs, folder)
        try:
            for number in range(kills):
                # As under tfrun, the kills fall on every place of an epoch.
                place = (number + 1) * BETWEEN % STEPS_AN_EPOCH
                _wait_for_steps(processes, folder, STEPS_AN_EPOCH + place)
                known, now = set(folder.glob("steps-*.txt")), time.time()
                processes[number % 2].kill()
                processes[number % 2].wait()
                _end(processes)
                processes = _start(python, epochs, folder)
                found.append(_recovery(folder, known, now, _new_step(processes, folder, known)))
        finally:
            _end(processes)
    return found


def _start(python: str, epochs: str, folder: Path) -> list[subprocess.Popen]:
    addresses = [f"127.0.0.1:{port}" for port in harness._free_ports(2)]
    shared = {**harness._environment(), "BENCH_STEPS": str(folder)}
    shared["BENCH_BACKUP"] = str(folder / "backup")
    processes = []
    for rank in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        with Path(folder, f"{rank}.log").open("ab") as log:
            processes.append(
                subprocess.Popen(
                    [python, str(SCRIPTS / "recovery.py"), "legacy", epochs],
                    env={**shared, "TF_CONFIG": json.dumps(task)},
                    stdout=log,
                    stderr=log,
                )
            )
    return processes


def _end(processes: Sequence[subprocess.Popen]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _wait_for_steps(processes: Sequence[subprocess.Popen], folder: Path, many: int) -> None:
    """Waits for so many steps: more than an epoch, so that there is something to go back to."""
    pids = {str(process.pid) for process in processes}

    def made() -> bool:
        found = [steps for path, steps in _steps(folder) if path.stem.rpartition("-")[2] in pids]
        return len(found) == 2 and all(len(s) >= many for s in found)

    _wait(made, processes, "the steps")


def _new_step(
    processes: Sequence[subprocess.Popen], folder: Path, known: set[Path]
) -> tuple[float, int]:
    return _wait(lambda: _first(folder, known), processes, "a new step")


def _wait(condition: Callable, processes: Sequence[subprocess.Popen], what: str):
    deadline = time.monotonic() + START_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
            raise SystemExit(f"TensorFlow by hand: {what} did not come")
        time.sleep(POLL_SECONDS)
    return value


# --- the steps, as the workers have written them down -----------------------------------------


def _steps(
    folder: Path, without: Collection[Path] = ()
) -> list[tuple[Path, list[tuple[float, int]]]]:
    """Returns each process's file with its steps: seconds since the epoch, iterations."""
    found = []
    for path in sorted(set(folder.glob("steps-*.txt")) - set(without)):
        whole = path.read_text().rpartition("\n")[0].splitlines()
        found.append((path, [(float(at), int(n)) for at, n in map(str.split, whole)]))
    return found


def _first(folder: Path, known: set[Path]) -> tuple[float, int] | None:
    """Returns the first step of processes that are not among the known ones."""
    new = [steps[0] for _, steps in _steps(folder, known) if steps]
    return min(new, default=None)


def _recovery(folder: Path, known: set[Path], killed: float, first: tuple[float, int]) -> Recovery:
    # Read now: the survivor may have finished a step after the kill.
    last = max(steps[-1][1] for path, steps in _steps(folder) if path in known and steps)
    return Recovery(seconds=first[0] - killed, redone=max(0, last + 1 - first[1]))


def _numbers(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "low": round(min(values), 3),
        "high": round(max(values), 3),
        "repeats": len(values),
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
