"""Parameter servers: Keras 3 under tfrun against legacy Keras. Goals: >= 1, `fit` >= 0.9 of a loop.

Both with the same servers, started in the same way; examples a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import (
    DEADLINE,
    SCRIPTS,
    _environment,
    _free_ports,
    compare,
    legacy_python,
    record,
)

SIZES = ((1, 1), (2, 1), (2, 2), (4, 2))  # workers, servers


def measured(python: str, library: str, how: str, what: str, workers: int, servers: int):
    """Examples a second of one run: a chief, and the servers that it needs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        with _cluster(python, workers, servers, library, how, what) as config:
            task = {"cluster": config, "task": {"type": "chief", "index": 0}}
            environment = {**_environment(), "TF_CONFIG": json.dumps(task), "BENCH_OUT": str(out)}
            if library == "keras3":
                # tfrun's repairs, as in a job of its own.
                command = ["-c", _LAUNCH, str(SCRIPTS / "parameter_server.py"), library, how, what]
            else:
                command = [str(SCRIPTS / "parameter_server.py"), library, how, what]
            done = subprocess.run(
                [python, *command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            if done.returncode:
                raise SystemExit(done.stderr[-4000:])
        return json.loads(out.read_text())


_LAUNCH = """
import runpy, sys
from tfrun.patches.apply import apply
apply()
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextlib.contextmanager
def _cluster(python: str, workers: int, servers: int, *arguments: str) -> Iterator[dict]:
    ports = iter(_free_ports(workers + servers + 1))
    counts = {"chief": 1, "worker": workers, "ps": servers}
    config = {r: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for r, n in counts.items()}
    started = []
    try:
        for role in ("ps", "worker"):
            for index in range(counts[role]):
                task = {"cluster": config, "task": {"type": role, "index": index}}
                environment = {**_environment(), "TF_CONFIG": json.dumps(task), "BENCH_ROLE": role}
                # As many threads as a worker has cores on a machine of its own.
                environment["TF_NUM_INTRAOP_THREADS"] = "1"
                started.append(
                    subprocess.Popen(
                        [python, str(SCRIPTS / "parameter_server.py"), *arguments],
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
        yield config
    finally:
        for process in started:
            process.kill()
            process.wait()


def main(repeats: int = 3) -> None:
    legacy = legacy_python()
    kinds = os.environ.get("BENCH_KINDS", "cnn recommender").split()
    sizes = [tuple(map(int, s.split("x"))) for s in os.environ.get("BENCH_SIZES", "").split()]
    for what in kinds:
        for workers, servers in sizes or SIZES:
            run = what, workers, servers
            results = compare(
                {
                    "fit, Keras 3, tfrun": lambda run=run: measured(
                        sys.executable, "keras3", "fit", *run
                    ),
                    "own loop, Keras 3, tfrun": lambda run=run: measured(
                        sys.executable, "keras3", "loop", *run
                    ),
                    "fit, legacy Keras": lambda run=run: measured(legacy, "legacy", "fit", *run),
                },
                repeats,
            )
            fit, loop, theirs = (numbers["median"] for numbers in results.values())
            name = f"parameter servers, {what}, {workers} workers, {servers} servers"
            record(
                name,
                "examples a second",
                results,
                fit_over_legacy=fit / theirs,
                fit_over_loop=fit / loop,
            )


if __name__ == "__main__":
    main()
