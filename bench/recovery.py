"""SIGKILL or SIGSTOP of one of 2 workers: seconds to the first new step, and steps redone.

Beside tfrun, what people use today, with the same kill (restarts.py). First the seed CNN, and then
ResNet50 (96x96, ten classes, eight pictures a step in all), where tfrun's workers stay and the
contenders take turns: one kill of each, in a job of its own, then the next.

Goals: the median of 20 kills is 1.5 s or less, no step is lost, and the weights are those of an
undisturbed run, bit for bit.

    recovery.py [KILLS [KILLS_OF_OTHERS [TURNS]]]

The last two are kills of each other contender, and of each with ResNet50; 0 leaves a part out.
"""

from __future__ import annotations

import functools
import itertools
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import harness
import in_place
import restarts
import steps
from harness import SCRIPTS, CannotInstall, DidNotRun, numbers, record, those_that_run
from steps import BETWEEN, STEPS_AN_EPOCH, Recovery

from tfrun.tools.child_job import ChildJob
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.run import DRILLED

RUN_SECONDS = 600.0
Kills = Callable[[Sequence[int]], list[Recovery]]  # gets the numbers of the kills

PEERS: dict[str, Kills] = {
    "restart + BackupAndRestore, legacy Keras": restarts.under_tensorflow,
    "torchrun, DDP, a checkpoint each epoch": restarts.under_torchrun,
    "Ray Train, legacy Keras, one each epoch": restarts.under_ray,
}
RESNET50: dict[str, Kills] = {
    "tfrun, Keras 3, workers stay": lambda numbers: [_in_place(n) for n in numbers],
    "torchrun, DDP, a checkpoint each epoch": functools.partial(
        restarts.under_torchrun, model="resnet50"
    ),
    "torchrun, DDP, one every 10 steps": functools.partial(
        restarts.under_torchrun, model="resnet50", every=10
    ),
    "Ray Train, PyTorch, one each epoch": functools.partial(restarts.under_ray, model="resnet50"),
}


def main(kills: int = 20, peer_kills: int = 5, turns: int = 5) -> None:
    if kills:
        _of_the_seed_cnn(kills, peer_kills)
    if turns:
        tell(", ResNet50", *by_turns(RESNET50, turns))


def _of_the_seed_cnn(kills: int, peer_kills: int) -> None:
    found = {"tfrun, Keras 3": under_tfrun(kills)}
    not_run = {}
    for name, peer in PEERS.items() if peer_kills else ():
        try:
            found[name] = peer(range(peer_kills))
        except (CannotInstall, DidNotRun) as error:
            not_run[name] = str(error)
    tell("", found, not_run)
    if peer_kills:
        stopped = [kill.seconds for kill in under_tfrun(peer_kills, signal.SIGSTOP)]
        record("SIGSTOP to first new step", "s", {"tfrun, Keras 3": numbers(stopped)})


def by_turns(
    contenders: Mapping[str, Kills], turns: int
) -> tuple[dict[str, list[Recovery]], dict[str, str]]:
    """Kills once in a job of each contender, and then once in another job of each.

    Returns:
      What each kill led to, and why others cannot be installed or fail.
    """
    one_each = {name: functools.partial(next, _each(kills)) for name, kills in contenders.items()}
    return those_that_run(one_each, turns)


def _each(kills: Kills) -> Iterator[Recovery]:
    for number in itertools.count():
        yield from kills([number])


def tell(model: str, found: Mapping[str, Sequence[Recovery]], not_run: Mapping[str, str]) -> None:
    """Records the tables of a model; the first contender is tfrun."""
    seconds = {name: numbers([kill.seconds for kill in all]) for name, all in found.items()}
    redone = {name: numbers([float(kill.redone) for kill in all]) for name, all in found.items()}
    ours, *theirs = (found["median"] for found in seconds.values())
    ratios = {"times_sooner_than_the_next": min(theirs) / ours} if theirs else {}
    record(f"SIGKILL to first new step{model}", "s", seconds, not_run=not_run, **ratios)
    record(f"steps redone{model}", "steps a kill", redone, not_run=not_run)


def _in_place(number: int) -> Recovery:
    """The worker that is left makes all eight pictures of the first new step itself."""
    (found,) = in_place.under(2, "resnet50", 0, [number], steps.before(number))
    return Recovery(seconds=found.seconds, redone=found.redone)


def under_tfrun(kills: int, how: signal.Signals = signal.SIGKILL) -> list[Recovery]:
    """Hits the chief and the other worker by turns in one job; checks its weights at the end."""
    epochs = str((kills + 2) * BETWEEN // STEPS_AN_EPOCH + 1)
    wanted = None
    found: list[Recovery] = []
    for disturbed in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            options = ["-n", "2", "--seed", "1", str(SCRIPTS / "recovery.py"), "keras3", epochs]
            shared = {**harness._environment(), "BENCH_STEPS": folder}
            with ChildJob(
                options,
                Path(folder, "run"),
                timeout=RUN_SECONDS,
                wanted=DRILLED,
                environment=shared,
            ) as job:
                if disturbed:
                    found = [_hit(job, Path(folder), i % 2, how) for i in range(kills)]
                if code := job.wait():
                    raise SystemExit(f"the job ended with {code}\n{job.log.read_text()[-4000:]}")
                weights = reading.weights(job.events())
        wanted = wanted or weights
        if not weights or weights != wanted:
            raise SystemExit(f"the weights are others: {weights}, not {wanted}")
    return found


def _hit(job: ChildJob, folder: Path, rank: int, how: signal.Signals) -> Recovery:
    """Kills or stops a worker once both have made some steps; waits for the first new one."""
    workers = job.until(lambda events: _both(reading.running(events), folder))
    if not workers:
        raise SystemExit("the job was over before all the kills")
    known, now = steps.files(folder), time.time()
    if not job.send(workers[f"worker:{rank}"].pid, how):
        raise SystemExit(f"worker {rank} had gone by itself")
    first = job.until(lambda _: steps.first(folder, known))
    if first is None:
        raise SystemExit("no new step followed")
    return steps.recovery(folder, known, now, first)


def _both(
    workers: Mapping[str, reading.WorkerRun], folder: Path
) -> Mapping[str, reading.WorkerRun]:
    """Returns the workers when there are two that have made enough steps, else none."""
    made = {steps.process(path)[1]: found for path, found in steps.read(folder).items()}
    ready = all(len(made.get(worker.pid, ())) >= BETWEEN for worker in workers.values())
    return workers if len(workers) == 2 and ready else {}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
