"""Runs workers without a launcher: one process imports and patches TensorFlow, then forks them.

A worker runs the script as `__main__` with TF_CONFIG, RANK and WORLD_SIZE set, and writes its
result as JSON to the file that TFRUN_TEST_OUT names (one file for each rank).
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


def run_workers(
    script: str | Path,
    n: int,
    env: dict[str, str] | None = None,
    timeout: float = 90,
    *,
    repaired: bool = True,
    lost: int | None = None,
) -> list[dict]:
    """Runs `script` (a name in scripts/, or a path) on `n` workers; the results by rank.

    Args:
      script: what each worker runs.
      n: number of workers.
      env: further environment variables.
      timeout: seconds until everything is killed.
      repaired: False runs plain TensorFlow and Keras, to see that their bugs are still there.
      lost: the rank of a worker that does not come to its end by intention; its result is {}.

    Raises:
      AssertionError: a worker failed or did not end within `timeout` seconds; the message has
        the output of all workers.
    """
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, __file__, str(SCRIPTS / script), str(n), out, str(timeout)]
        command += [str(int(repaired)), str(-1 if lost is None else lost)]
        log = Path(out) / "log"
        with log.open("wb") as stream:
            zygote = subprocess.Popen(
                command,
                env=_environment(env or {}),
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_for_exit(zygote.pid, deadline=time.monotonic() + timeout + 30)
        finally:
            # The session holds every process that this run started. Its leader is not reaped
            # yet, so that its number cannot be another session's by now.
            os.killpg(zygote.pid, signal.SIGKILL)
            zygote.wait()
        output = log.read_text(errors="replace")
        assert zygote.returncode == 0, f"{script} on {n} workers failed:\n{output[-20000:]}"
        return [
            {} if rank == lost else json.loads(_result(out, rank).read_text()) for rank in range(n)
        ]


def _wait_for_exit(pid: int, deadline: float) -> None:
    """Waits until a child has ended, without reaping it."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def largest_difference(a, b) -> float:
    """The largest absolute difference of any two numbers at the same place of `a` and `b`.

    Infinite where their structures or texts differ; two NaNs are equal.
    """
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((largest_difference(a[key], b[key]) for key in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max(map(largest_difference, a, b), default=0.0)
    if isinstance(a, int | float) and isinstance(b, int | float):
        difference = 0.0 if a == b or (a != a and b != b) else abs(a - b)
        return difference if difference == difference else float("inf")
    return 0.0 if a == b else float("inf")


def _environment(extra: dict[str, str]) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "TF_CONFIG"))}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**inherited, **quiet, **threads, **extra}


def _result(out: str, rank: int) -> Path:
    return Path(out) / f"{rank}.json"


def _zygote(script: str, n: int, out: str, timeout: float, repaired: bool, lost: int) -> int:
    """Forks the workers; returns 0 when all of them succeeded. The deadline is hard."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    if repaired:
        from tfrun.patches.apply import apply

        apply()
    # Bound but not listening: nobody else gets the port, TensorFlow's server still can.
    reserved = [socket.socket() for _ in range(n)]
    for each in reserved:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in reserved]
    # A worker that left early would be a failure to its peers: all leave when all are done.
    finished_r, finished_w = os.pipe()
    release_r, release_w = os.pipe()
    pids = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            os.close(release_w)
            _worker(script, rank, addresses, out, timeout, finished_w, release_r)
        pids.append(pid)
    os.close(finished_w)
    signal.alarm(int(timeout))
    done = b""
    expected = n - (lost in range(n))
    while len(done) < expected and b"x" not in done:
        data = os.read(finished_r, 1)
        if not data:
            break
        done += data
    ok = done == b"." * expected
    if ok:
        if lost in range(n):
            os.kill(pids.pop(lost), signal.SIGKILL)
        os.close(release_w)
    else:
        time.sleep(0.5)  # the others' own tracebacks are worth reading
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return 0 if ok and not any(statuses) else 1


def _worker(script, rank, addresses, out, timeout, finished_w, release_r) -> None:
    task = {"type": "worker", "index": rank}
    os.environ.update(
        TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": task}),
        RANK=str(rank),
        WORLD_SIZE=str(len(addresses)),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(len(addresses)),
        TFRUN_ROUND="0",
        TFRUN_TEST_OUT=str(_result(out, rank)),
    )
    if os.environ.get("TEST_PIN_CORES") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    faulthandler.dump_traceback_later(max(1.0, timeout - 3))
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).parent))
    mark = b"."
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        print(f"worker {rank}:", file=sys.stderr)
        traceback.print_exc()
        mark = b"x"
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(finished_w, mark)
    os.read(release_r, 1)
    os._exit(0)


if __name__ == "__main__":
    _script, _n, _out, _timeout, _repaired, _lost = sys.argv[1:]
    sys.exit(_zygote(_script, int(_n), _out, float(_timeout), bool(int(_repaired)), int(_lost)))
