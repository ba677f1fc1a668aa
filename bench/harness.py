"""Runs two or more contenders interleaved and compares their medians."""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
RESULTS = HERE / "results"
DEADLINE = 600
INSTALL_SECONDS = 900
PYTORCH, RAY = "torch==2.13.0", "ray[train]==2.60.0"


def tfrun(
    workers: int, script: str, *args: str, python: str = sys.executable, **options: str
) -> list[float]:
    """Runs a script under tfrun; returns the numbers that rank 0 wrote.

    `options` are those of the command line, by the names of their environment variables.
    """
    command = [str(Path(python).with_name("tfrun")), "-n", str(workers), "--run-dir"]
    with tempfile.TemporaryDirectory() as directory:
        environment = {**_environment(), **options, "BENCH_OUT": f"{directory}/out", **_now()}
        run = [*command, f"{directory}/run", str(SCRIPTS / script), *args]
        _check([subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, stderr=-1)])
        return json.loads(Path(directory, "out").read_text())


def apart(jobs: int, script: str, *args: str, **options: str) -> list[float]:
    """Runs a script under tfrun as so many jobs of one worker, at once, each on its own core.

    What they take longer than one alone is the machine's: they share its memory, and nothing else.

    Returns:
      The numbers of all.
    """
    cores = sorted(os.sched_getaffinity(0))[:jobs]
    tool = str(Path(sys.executable).with_name("tfrun"))
    with tempfile.TemporaryDirectory() as directory:
        outs = [Path(directory, f"out-{core}") for core in cores]
        processes = []
        for core, out in zip(cores, outs, strict=True):
            environment = {**_environment(), **options, "BENCH_OUT": str(out), **_now()}
            run = [tool, "-n", "1", "--run-dir", f"{directory}/run-{core}", str(SCRIPTS / script)]
            command = ["taskset", "--cpu-list", str(core), *run, *args]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe)
            processes.append(process)
        _check(processes)
        return [number for out in outs for number in json.loads(out.read_text())]


def by_hand(
    workers: int, script: str, *args: str, python: str = sys.executable, **environment: str
) -> list[float]:
    """Runs a script as the tutorials do: a process for each worker, TF_CONFIG written by hand."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(workers)]}
        shared = {**_environment(), **environment, "BENCH_OUT": f"{directory}/out", **_now()}
        processes = [
            subprocess.Popen(
                [python, str(SCRIPTS / script), *args],
                env={
                    **shared,
                    "RANK": str(rank),
                    "TF_CONFIG": json.dumps(
                        {"cluster": cluster, "task": {"type": "worker", "index": rank}}
                    ),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(workers)
        ]
        _check(processes)
        return json.loads(Path(directory, "out").read_text())


def alone(script: str, *args: str, python: str, **environment: str) -> list[float]:
    """Runs one process that starts its workers itself; returns the numbers that rank 0 wrote."""
    with tempfile.TemporaryDirectory() as directory:
        shared = {**_environment(), **environment, "BENCH_OUT": f"{directory}/out", **_now()}
        command = [python, *(["-m"] if script.startswith("torch.") else []), script, *args]
        _check([subprocess.Popen(command, env=shared, stdout=subprocess.PIPE, stderr=-1)])
        return json.loads(Path(directory, "out").read_text())


def legacy_python() -> str:
    """Returns the interpreter of an environment with legacy Keras, made on the first call."""
    return environment("legacy", f"tensorflow-cpu=={_tensorflow()}", alone=[_legacy_keras()])


def torch_python() -> str:
    """The interpreter of an environment with PyTorch."""
    return environment("torch", PYTORCH, "numpy")


def jax_python() -> str:
    """The interpreter of an environment with Keras 3 on JAX."""
    return environment("jax", "jax", "jaxlib", "keras", "numpy")


def ray_python() -> str:
    """The interpreter of an environment with Ray, TensorFlow and legacy Keras."""
    packages = f"tensorflow-cpu=={_tensorflow()}", RAY
    return environment("ray", *packages, alone=[_legacy_keras()])


def ray_torch_python() -> str:
    """The interpreter of an environment with Ray and PyTorch."""
    return environment("ray-torch", PYTORCH, RAY, "numpy")


def _legacy_keras() -> str:
    """Of TensorFlow's series; with its dependencies it would bring the full `tensorflow`."""
    return f"tf_keras=={'.'.join(_tensorflow().split('.')[:2])}.*"


def environment(name: str, *packages: str, alone: Sequence[str] = ()) -> str:
    """Returns the interpreter of a virtual environment in bench/envs, made on the first call.

    Args:
      name: of its directory.
      *packages: what pip installs.
      alone: what pip installs without its dependencies.

    Raises:
      CannotInstall: pip says that it cannot.
    """
    folder = HERE / "envs" / name
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        _pip(python, *packages)
        if alone:
            _pip(python, "--no-deps", *alone)
        complete.touch()
    return str(python)


class DidNotRun(Exception):
    """A contender failed, took too long, or came to no new step."""


class CannotInstall(Exception):
    """A contender is not to be had here: its benchmark is reported as not run."""


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"pip took longer than {INSTALL_SECONDS} s") from error
    if done.returncode:
        raise CannotInstall(done.stderr.strip().splitlines()[-1])


def compare(
    contenders: Mapping[str, Callable[[], Sequence[float]]], repeats: int
) -> dict[str, dict[str, float]]:
    """Runs each contender `repeats` times in turn; returns median, lowest and highest of each."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            samples[name].append(statistics.median(run()))
    return {name: numbers(values) for name, values in samples.items()}


def compare_what_runs(
    contenders: Mapping[str, Callable[[], Sequence[float]]], repeats: int
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """As `compare`; who cannot be installed or fails is left out, with the reason."""
    found, not_run = those_that_run(contenders, repeats)
    samples = {name: [statistics.median(run) for run in runs] for name, runs in found.items()}
    return {name: numbers(values) for name, values in samples.items()}, not_run


def those_that_run(
    contenders: Mapping[str, Callable[[], T]], repeats: int
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """Runs all by turns; returns what each gave, and why others cannot be installed or fail."""
    found: dict[str, list[T]] = {}
    not_run: dict[str, str] = {}
    for _ in range(repeats):
        for name, run in contenders.items():
            if name in not_run:
                continue
            try:
                found.setdefault(name, []).append(run())
            except (CannotInstall, DidNotRun) as error:
                not_run[name] = str(error)
    return {name: runs for name, runs in found.items() if name not in not_run}, not_run


def numbers(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of `values`, and how many they are."""
    return {
        "median": round(statistics.median(values), 3),
        "low": round(min(values), 3),
        "high": round(max(values), 3),
        "repeats": len(values),
    }


def record(
    name: str,
    unit: str,
    results: Mapping[str, Mapping[str, float]],
    *,
    not_run: Mapping[str, str] | None = None,
    **ratios: float,
):
    """Prints a benchmark's table and adds it to bench/results/latest.json.

    Args:
      name: of the benchmark.
      unit: of the numbers.
      results: for each contender its numbers.
      not_run: contenders that are missing, and why.
      **ratios: between contenders.
    """
    print(f"\n{name} ({unit})")
    for contender, numbers in results.items():
        print(
            f"  {contender:44} {numbers['median']:10.3f}"
            f"   [{numbers['low']:.3f} .. {numbers['high']:.3f}]"
        )
    # The rest of a reason is a traceback, with the paths of this machine.
    not_run = {name: reason.splitlines()[0] for name, reason in (not_run or {}).items()}
    for contender, reason in not_run.items():
        print(f"  {contender:44} not run: {reason}")
    for ratio, value in ratios.items():
        print(f"  {ratio.replace('_', ' '):44} {value:10.2f}")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "latest.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything["machine"] = {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "tensorflow": _tensorflow(),
        "tcp": _congestion_control(),
        "date": time.strftime("%Y-%m-%d"),
    }
    everything[name] = {
        "unit": unit,
        "results": results,
        "ratios": {ratio: round(value, 3) for ratio, value in ratios.items()},
        **({"not run": not_run} if not_run else {}),
    }
    path.write_text(json.dumps(everything, indent=2) + "\n")


def _check(processes: Sequence[subprocess.Popen]) -> None:
    deadline = time.monotonic() + DEADLINE
    try:
        for process in processes:
            _, errors = process.communicate(timeout=deadline - time.monotonic())
            if process.returncode:
                last = errors.decode(errors="replace").strip()[-4000:]
                reason = last.splitlines()[-1] if last else "no word"
                print(last, file=sys.stderr)
                raise DidNotRun(f"exit code {process.returncode}: {reason}")
    except subprocess.TimeoutExpired as error:
        raise DidNotRun(f"it took more than {DEADLINE} s") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    # Bytecode is kept, as everywhere: what is installed has its own from the installer.
    left_out = ("TFRUN_", "TF_", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2"}


def _now() -> dict[str, str]:
    return {"BENCH_START": repr(time.time())}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def _tensorflow() -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise SystemExit("TensorFlow is not installed")


def _congestion_control() -> str:
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return path.read_text().strip() if path.exists() else ""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
