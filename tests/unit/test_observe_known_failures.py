"""Known failures are recognized by texts that real runs have given."""

from __future__ import annotations

import errno
import signal
import socket
import time
from collections.abc import Callable

import numpy as np
import pytest

from tfrun.agent.hangs import told
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, Outcome
from tfrun.job.reports import Error
from tfrun.observe.failure_report import failure_json
from tfrun.observe.known_failures import KNOWN, advice
from tfrun.process.progress import Phase, Reading


def known(error: BaseException | None = None, *, code: int = 1, oom: bool = False, tail: str = ""):
    reported = Error(type=type(error).__name__, message=str(error)) if error else None
    failure = Failure(
        task="worker:1",
        time=1.0,
        code="TFRUN-403" if oom else "TFRUN-401",
        status=ExitStatus(code=code, out_of_memory=oom),
        error=reported,
        tail=tail,
    )
    found = advice(failure)
    return found and found.name


def raised(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_out_of_memory_by_the_kernel_and_by_numpy():
    assert known(code=-9, oom=True) == "host memory, killed"
    assert known(raised(lambda: np.empty((1 << 60,), np.int8))) == "host memory, refused"
    assert known(MemoryError()) == "host memory, refused"


def test_machines_with_other_versions_are_the_last_that_is_thought_of():
    failures = [
        Failure(task="worker:1", time=1.0, error=Error(type=kind, message="x"))
        for kind in ("AttributeError", "MemoryError")
    ]
    told = ["b has Keras 3.9.1 (a: 3.15.1)"]
    assert [advice(failure) and advice(failure).name for failure in failures] == [
        *(None, "host memory, refused")
    ]
    guess, known = (advice(failure, told) for failure in failures)
    assert guess and known and known.name == "host memory, refused"
    assert guess.likely.endswith(
        "perhaps different versions of packages: b has Keras 3.9.1 (a: 3.15.1)"
    )


def test_workers_that_tfrun_has_ended():
    since = time.monotonic() - 13
    for phase, name in (
        (Phase.WORKERS_START, "stuck in the workers' start"),
        (Phase.STEP, "no progress"),
    ):
        tail = told("worker:1", Reading(phase=phase, since=since, step_seconds=1.0), 13.0)
        assert known(code=-9, tail=f"Thread 0x1\n{tail}") == name
    assert known(code=-9) == "killed"


def test_a_full_disk():
    def write() -> None:
        with open("/dev/full", "w") as file:  # noqa: PTH123
            file.write("x" * 100_000)

    assert known(raised(write)) == "disk full"


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = raised(lambda: socket.create_server(server.getsockname()))
    assert isinstance(taken, OSError)
    assert taken.errno == errno.EADDRINUSE
    assert known(taken) == "port in use"


def test_a_missing_package_file_and_permission():
    assert known(raised(lambda: __import__("no_such_package"))) == "package missing"
    assert known(raised(lambda: open("/no/such/file"))) == "file missing"  # noqa: SIM115, PTH123
    assert known(PermissionError(13, "Permission denied", "/root/x")) == "permission"


# What TensorFlow, Keras and NCCL say; real failures: tests/cluster/test_known_failures.py. Those of
# GPUs and NCCL are from TensorFlow's and NCCL's sources, because there was no GPU.
SAID = {
    "OOM when allocating tensor with shape[8192,8192] and type float on /job:localhost/replica:0/"
    "task:0/device:GPU:0 by allocator GPU_0_bfc": "GPU memory",
    "OOM when allocating tensor with shape[1099511627776] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu": "host memory, refused",
    "NCCL WARN Bootstrap : no socket interface found": "NCCL without a network",
    "ncclInternalError: internal error": "NCCL",
    "Collective ops is aborted by: NCCL: invalid usage (run with NCCL_DEBUG=WARN)": "NCCL",
    "init.cc:904 NCCL WARN Duplicate GPU detected : rank 1 and rank 0": "NCCL",
    "Unexpected result of `train_function` (Empty Logs). This could be due to issues in input "
    "pipeline that resulted in an empty dataset.": "no data",
    'Input 0 of layer "dense" is incompatible with the layer: expected axis -1 of input shape to '
    "have value 64, but received input with shape (None, 32)": "shapes",
    # Keras's example "Metric learning", with batches of shape (2, classes, …), on two workers
    "slice index 1 of dimension 0 out of bounds.": "a part of the batch",
    # … and "Switch Transformer", which makes tokens of a batch
    "Cannot reshape a tensor with 320 elements to shape [80,8] (640)": "a part of the batch",
    # A queue of features, where a worker has no sample of a short batch and the step runs eagerly
    "The shape of the target variable and the shape of the target value in "
    "`variable.assign(value)` must match. variable.shape=(12, 1), Received: value.shape=(0, 1).": (
        "a part of the batch"
    ),
    # … and "3D volumetric rendering with NeRF", which makes BATCH_SIZE images of the rays
    "Incompatible shapes: [3,6,6,3] vs. [5,6,6,3]": "a part of the batch",
    "Incompatible shapes: [5,6] vs. [5,7]": "shapes",
    # x.shape[0] of a pipeline with drop_remainder, which has no static size where workers share it
    "Expected int32, but got None of type 'NoneType'.": "a part of the batch",
    "None values not supported.": "a part of the batch",
    "Exception encountered when calling LSTM.call().\n\nIf an RNN is stateful, the batch size of "
    "the input sequences must be the same as the batch size of the initial state. \n- Expected "
    "batch size: 16\n- Received batch size: 8": "a part of the batch",
    # … and "Message-passing neural network", which makes one graph of a batch
    "indices[3] = 18 is not in [0, 17)": "numbers of rows",
    "Received a label value of 12 which is outside the valid range of [0, 10).": "labels outside "
    "of the classes",
    # A real one, on a CPU; TensorFlow waits 10 s before it says so.
    "{{function_node __wrapped__Fill_device_/job:localhost/task:0/device:CPU:0}} OOM when "
    "allocating tensor with shape[1048576,1048576] and type float on /job:localhost/replica:0/"
    "task:0/device:CPU:0 by allocator mklcpu [Op:Fill] name: ": "host memory, refused",
    "[Errno 24] Too many open files: 'data-00017'": "too many open files",
    "DNN library initialization failed.": "GPU libraries",
}


@pytest.mark.parametrize(("text", "name"), SAID.items(), ids=list(SAID.values()))
def test_what_was_said(text: str, name: str):
    assert known(RuntimeError(text)) == name
    assert known(tail=f"…\n{text}\n") == name


@pytest.mark.parametrize(
    ("signum", "name"),
    [
        (signal.SIGILL, "illegal instruction"),
        (signal.SIGBUS, "bus error"),
        (signal.SIGSEGV, "crash"),
        (signal.SIGKILL, "killed"),
    ],
)
def test_ends_by_signals(signum: int, name: str):
    assert known(code=-signum) == name


def test_nothing_is_made_up_about_other_failures():
    assert known(ValueError("my own mistake")) is None
    assert known(code=3) is None
    assert known(RuntimeError("TFRUN-507: Permission denied")) is None  # it says itself what to do


def test_the_report_tells_cause_and_fix():
    failure = Failure(task="worker:2", time=1.0, status=ExitStatus(code=-7))
    report = failure_json(Outcome(exit_code=1, cause=failure, others=3))
    assert report is not None
    assert report["likely"].startswith("/dev/shm is full")
    assert "--shm-size" in report["fix"]
    assert report["others_text"] == "3 other tasks were stopped because of it."
    assert report["log"] == "logs/worker-2.log"


def test_what_was_meant_to_be_bold_is_plain_text_in_the_report():
    error = Error(type="ValueError", message="\x1b[1mInput 0\x1b[0m", traceback="\x1b[1mx")
    report = failure_json(
        Outcome(exit_code=1, cause=Failure(task="worker:0", time=1.0, error=error))
    )
    assert report and (report["message"], report["traceback"]) == ("Input 0", "x")


def test_each_is_a_sentence_without_its_full_stop():
    for one in KNOWN:
        assert one.pattern or one.signum or one.out_of_memory
        for text in (one.likely, one.fix):
            assert not text.endswith(".")
