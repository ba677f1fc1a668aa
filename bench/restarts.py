"""The same fault under what people use today: all workers start again from the last epoch.

Each contender trains the seed CNN, or ResNet50, on two workers. Once both have come past an epoch's
end, one is killed by SIGKILL, and the time until any worker has made a step again is taken. Each
runs one job for all `numbers`, which are those of the kills: they say where in an epoch a kill
comes, and whom it hits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
import psutil
import steps
from harness import (
    SCRIPTS,
    DidNotRun,
    legacy_python,
    ray_python,
    ray_torch_python,
    torch_python,
)
from steps import STEPS_AN_EPOCH, Recovery

from tfrun.process import lineage

START_SECONDS = 300.0  # to the steps before a kill, and from it to the first new one
POLL_SECONDS = 0.005


def under_tensorflow(numbers: Sequence[int]) -> list[Recovery]:
    """Two processes, ended and started again as soon as one has died; BackupAndRestore."""
    python = legacy_python()

    def start(epochs: str, shared: Mapping[str, str], log: Path) -> list[subprocess.Popen]:
        addresses = [f"127.0.0.1:{port}" for port in harness._free_ports(2)]
        found = []
        for rank in range(2):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            variables = {**shared, "TF_CONFIG": json.dumps(task)}
            found.append(
                _spawn([python, SCRIPTS / "recovery.py", "legacy", epochs], variables, log)
            )
        return found

    return _kill_and_wait(start, numbers, restarts_itself=False)


def under_torchrun(
    numbers: Sequence[int], model: str = "cnn", every: int = STEPS_AN_EPOCH
) -> list[Recovery]:
    """DistributedDataParallel with gloo; torchrun starts the workers again.

    There is a checkpoint every so many steps. By default its agent keeps one store for all
    restarts, and workers then find the addresses of those that have died
    (pytorch/pytorch#135712): the variable has it make a new one each time.
    """
    python = torch_python()
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def start(epochs: str, shared: Mapping[str, str], log: Path) -> list[subprocess.Popen]:
        script = [SCRIPTS / "recovery_torch.py", model, epochs, str(every)]
        # Killed at the end, it would leave its own folder of logs behind.
        logs = ["--log-dir", log.with_name("logs")]
        options = ["--max-restarts", str(len(numbers) + 1), *logs, *script]
        variables = {**shared, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return [_spawn([*torchrun, *options], variables, log)]

    return _kill_and_wait(start, numbers)


def under_ray(numbers: Sequence[int], model: str = "cnn") -> list[Recovery]:
    """Ray Train, which starts the workers again.

    The seed CNN is under its TensorflowTrainer, which needs legacy Keras, and ResNet50 under its
    TorchTrainer.
    """
    python = ray_python() if model == "cnn" else ray_torch_python()

    def start(epochs: str, shared: Mapping[str, str], log: Path) -> list[subprocess.Popen]:
        variables = {**shared, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
        return [_spawn([python, SCRIPTS / "recovery_ray.py", model, epochs], variables, log)]

    return _kill_and_wait(start, numbers)


Start = Callable[[str, Mapping[str, str], Path], list[subprocess.Popen]]


def _kill_and_wait(
    start: Start, numbers: Sequence[int], *, restarts_itself: bool = True
) -> list[Recovery]:
    # Each kill takes the job two epochs further at most.
    epochs = str(2 * len(numbers) + 20)
    found = []
    with _folder() as folder:
        shared = {**harness._environment(), "BENCH_STEPS": str(folder)}
        shared["BENCH_BACKUP"] = str(folder / "backup")
        log = folder / "log"
        known: set[Path] = set()
        processes = start(epochs, shared, log)
        try:
            for number in numbers:
                # As under tfrun, the kills fall on every place of an epoch.
                many = steps.before(number)
                pids = _wait(lambda: _both(folder, known, many), processes, log)  # noqa: B023
                known, now = steps.files(folder), time.time()
                os.kill(pids[number % 2], signal.SIGKILL)
                if not restarts_itself:
                    _end(processes)
                    processes = start(epochs, shared, log)
                new = _wait(lambda: steps.first(folder, known), processes, log)  # noqa: B023
                found.append(steps.recovery(folder, known, now, new))
        finally:
            _end(processes)
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A directory; in the end no process is left that has it in its environment."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        try:
            yield Path(name)
        finally:
            left = []
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("BENCH_STEPS") == name:
                        process.kill()
                        left.append(process)
            psutil.wait_procs(left, timeout=10)


def _spawn(command: list, variables: Mapping[str, str], log: Path) -> subprocess.Popen:
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            list(map(str, command)),
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: lineage.die_with_parent(parent) if sys.platform == "linux" else None,
        )


def _both(folder: Path, known: set[Path], many: int) -> dict[int, int] | None:
    """Process ids by rank once there are two that have made so many steps."""
    ready = [path for path, made in steps.read(folder, known).items() if len(made) >= many]
    pids = dict(map(steps.process, ready))
    return pids if len(pids) == 2 else None


def _end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _wait(condition: Callable[[], Any], processes: list[subprocess.Popen], log: Path) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while not (value := condition()):
        if any(process.poll() is not None for process in processes):
            raise DidNotRun(f"it has ended\n{log.read_text(errors='replace')[-4000:]}")
        if time.monotonic() > deadline:
            last = log.read_text(errors="replace")[-4000:]
            raise DidNotRun(f"no new step within {START_SECONDS:.0f} s\n{last}")
        time.sleep(POLL_SECONDS)
    return value
