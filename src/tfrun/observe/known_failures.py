"""Explains failures that many have had: how they look, what they likely mean, what helps."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tfrun.job.first_failure import Failure


@dataclass(frozen=True, kw_only=True)
class Known:
    """A known failure; it is one when its pattern is found and its signal, if any, fits.

    Attributes:
      name: for tests and people who talk about it.
      likely: the likely cause.
      fix: what helps.
      pattern: a regular expression for the exception's type and message, or the end of the log.
      signum: the signal that ended the process.
      out_of_memory: the kernel ended it because memory ran out.
    """

    name: str
    likely: str
    fix: str
    pattern: str = ""
    signum: int = 0
    out_of_memory: bool = False

    def fits(self, failure: Failure, text: str) -> bool:
        """Whether a failure, whose type, message and last lines are `text`, is this one."""
        status = failure.status
        if self.out_of_memory and not (status and status.out_of_memory):
            return False
        if self.signum and not (status and status.code == -self.signum):
            return False
        return not self.pattern or re.search(self.pattern, text) is not None


# A worker failed, was killed for lack of memory, failed again and again at one step.
WORKERS_OWN = ("TFRUN-401", "TFRUN-403", "TFRUN-405")

# The first that fits is told.
KNOWN = (
    Known(
        name="stuck in the workers' start",
        signum=signal.SIGKILL,
        pattern=r"has been stuck in the workers' start for",
        likely="a worker that it waits for is not running, or its port cannot be reached",
        fix="Start all tasks within --join-timeout; tfrun doctor -H … says which machines cannot "
        "reach each other",
    ),
    Known(
        name="no progress",
        signum=signal.SIGKILL,
        pattern=r"has made no progress for \d+ s and is being replaced",
        likely="it made no step within --hang-timeout: it may wait for a lock, a slow disk, or "
        "data that does not arrive",
        fix="The Python stack in its log shows where it was; if a step may take that long, set a "
        "longer --hang-timeout",
    ),
    Known(
        name="host memory, killed",
        out_of_memory=True,
        likely="the machine, or the container, has no memory left",
        fix="Use fewer workers on the machine, a smaller batch (tfrun tune finds the largest that "
        "fits), or a smaller shuffle buffer and cache; tfrun status shows each worker's memory",
    ),
    Known(
        name="disk full",
        pattern=r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b",
        likely="a disk, or /dev/shm, is full",
        fix="Free some space, or name other directories with --run-dir and --checkpoint-dir; a "
        "smaller --keep keeps fewer checkpoints",
    ),
    Known(
        name="GPU memory",
        pattern=r"OOM when allocating tensor.*(?i:gpu)|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA out of memory|failed to allocate .* from device",
        likely="the model and its batch do not fit into the GPU's memory, or other processes use "
        "it too",
        fix="Use a smaller batch on each worker (tfrun tune finds the largest that fits); "
        "nvidia-smi shows which other processes use the GPU",
    ),
    Known(
        name="host memory, refused",
        pattern=r"\bMemoryError\b|Unable to allocate [\d.]+ .iB|std::bad_alloc"
        r"|OOM when allocating tensor|Cannot allocate memory",
        likely="an array or a tensor is larger than the memory that is left",
        fix="Use a smaller batch, and read the data piece by piece (tfrun.Dataset, tf.data) "
        "instead of loading all of it into each worker",
    ),
    Known(
        name="NCCL without a network",
        pattern=r"no socket interface found|ncclSystemError"
        r"|NCCL.*(unhandled system error|Bootstrap)",
        likely="NCCL does not find the network between the machines",
        fix="Set NCCL_SOCKET_IFNAME to the interface that they share, and pass it on with --env; "
        "NCCL_DEBUG=INFO shows what NCCL tries; --communication ring does not use NCCL",
    ),
    Known(
        name="NCCL",
        pattern=r"ncclInternalError|ncclUnhandledCudaError|NCCL (error|failure)|\bncclCommInit"
        r"|NCCL: (invalid usage|internal error|unhandled cuda error)|Duplicate GPU detected",
        likely="the GPUs of the workers cannot talk to each other: drivers, topology or versions",
        fix="NCCL_DEBUG=INFO shows where it fails; tfrun doctor compares the machines; "
        "--communication ring does not use NCCL",
    ),
    Known(
        name="port in use",
        pattern=r"Address already in use|Errno 98\b|Could not start gRPC server|EADDRINUSE",
        likely="another process already uses the port that this one was given",
        fix="ss -ltnp shows which process that is; where no ports are fixed (--cluster, "
        "TF_CONFIG), tfrun finds free ones",
    ),
    Known(
        name="different versions",
        pattern=r"may indicate binary incompatibility|compiled (using|against) (NumPy|API version)"
        r"|incompatible Protobuf Gencode/Runtime|Descriptors cannot be created directly"
        r"|undefined symbol: |version `(GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        likely="some packages, or system libraries, do not match: they were built for other "
        "versions of each other",
        fix="Reinstall TensorFlow, Keras and NumPy, in the same versions on every machine; tfrun "
        "doctor compares them",
    ),
    Known(
        name="package missing",
        pattern=r"ModuleNotFoundError.*No module named|ImportError.*cannot import name",
        likely="the package is missing in this machine's Python, or has another version there",
        fix="On every machine, install the same versions in the Python that runs tfrun "
        "(--remote-python says which one that is); tfrun doctor compares the machines",
    ),
    Known(
        name="GPU libraries",
        pattern=r"DNN library (is not found|initialization failed)|no kernel image is available"
        r"|CUDA driver version is insufficient|Loaded runtime CuDNN library",
        likely="the driver, CUDA or cuDNN on this machine does not work with this TensorFlow",
        fix="pip install 'tensorflow[and-cuda]' installs CUDA and cuDNN versions that do; the "
        "driver must be new enough for them (nvidia-smi shows its version)",
    ),
    Known(
        name="no data",
        pattern=r"Unexpected result of `(train|test)_function` \(Empty Logs\)"
        r"|PyDataset has length 0|did not yield any|ran out of data|dataset (is|was) empty",
        likely="this worker got no batch: its share of the data is empty",
        fix="Provide at least as many samples (or files) as there are workers; drop_remainder and "
        "take() may leave fewer than you expect; tfrun.Dataset can share out any number of samples",
    ),
    Known(
        name="labels outside of the classes",
        pattern=r"Received a label value of .* outside the valid range",
        likely="some labels are outside the range of the model's outputs, 0 to outputs - 1",
        fix="Give the model one output for each class, and number the classes from 0",
    ),
    Known(
        name="shapes after a resume",
        pattern=r"(?is)(load_weights|restore|load_own_variables|checkpoint).*"
        r"(shape mismatch|shapes? .* (not |in)compatible|different shape|expected shape)"
        r"|objects could not be loaded.*shape of the target"
        r"|tensor with shape .* when attempting to restore variable with shape",
        likely="the model has changed since the checkpoint was saved",
        fix="Build the model as it was, or start over with --fresh or another --checkpoint-dir",
    ),
    Known(
        name="a part of the batch",
        pattern=r"slice index \d+ of dimension 0 out of bounds"
        r"|Cannot reshape a tensor with \d+ elements|Input to reshape is a tensor with \d+ values"
        r"|must match\. variable\.shape=.* Received: value\.shape=\(0,"
        r"|Incompatible shapes: \[(\d+)((?:,\d+)+)\] vs\. \[(?!(?:1|\1),)\d+\2\]"
        r"|got None of type 'NoneType'|None values not supported|If an RNN is stateful, the batch",
        likely="the script expects whole batches (x.shape[0], BATCH_SIZE in a reshape, a layer's "
        "batch_shape), but with several workers each one gets only some of the rows",
        fix="Take the number of rows from the tensor (-1, tf.shape(x)[0]), and make samples the "
        "first dimension. x.shape[0] is known with drop_remainder=True, if the number of workers "
        "divides the batch size and steps_per_execution is not set. Or train with -n 1",
    ),
    Known(
        name="numbers of rows",
        pattern=r"indices\[[\d, ]*\] = -?\d+ is not in \[0, \d+\)",
        likely="an index is too large for its table: an Embedding's input_dim is too small; or "
        "samples refer to other rows of the batch by number (graphs merged into one), but with "
        "several workers each one gets only some of the rows",
        fix="Compare input_dim with the largest index; pad all samples to one size and merge them "
        "in the model, so that every first dimension counts samples; or train with -n 1",
    ),
    Known(
        name="shapes",
        pattern=r"Incompatible shapes|incompatible with the layer|expected (axis|shape|min_ndim)"
        r"|Shapes? .* (are|is) (not |in)compatible|Matrix size-incompatible",
        likely="the data's shape is not the one that the model was built for",
        fix="Compare model.input_shape with dataset.element_spec",
    ),
    Known(
        name="damaged file",
        pattern=r"DataLossError|corrupted record|truncated record|Is this even a TFRecord file",
        likely="a file of records was cut off while it was written or copied, or is another kind "
        "of file",
        fix="Write or copy it again; with tf.data, ignore_errors() skips damaged records",
    ),
    Known(
        name="not a number",
        pattern=r"Tensor had (NaN|-?Inf)|(?i:loss) is (nan|inf|not finite)",
        likely="the training has diverged, or the data contains NaN or infinite values",
        fix="Try a lower learning rate, or clipnorm in the optimizer, and look for NaN in the "
        "data. If more workers mean a larger batch, tfrun.scaled_lr warms the learning rate up",
    ),
    Known(
        name="too many open files",
        pattern=r"Too many open files|Errno 24\b",
        likely="this process has more files and connections open than it may",
        fix="Run ulimit -n 65536 before tfrun, or read fewer files at once",
    ),
    Known(
        name="permission",
        pattern=r"PermissionError|Permission denied",
        likely="this user may not read or write that path on this machine",
        fix="Look at the owner and mode of that path there; they may differ between machines",
    ),
    Known(
        name="file missing",
        pattern=r"FileNotFoundError|NotFoundError.*No such file or directory",
        likely="the file is not there on this worker's machine",
        fix="Use a path that all machines see, or copy the script's directory with --sync; "
        "relative paths start at --remote-dir",
    ),
    Known(
        name="illegal instruction",
        signum=signal.SIGILL,
        likely="a library was built for instructions that this processor does not have",
        fix="Install another build of it, or use another machine (TensorFlow's packages need AVX)",
    ),
    Known(
        name="bus error",
        signum=signal.SIGBUS,
        likely="/dev/shm is full, or somebody shortened a file that was mapped into memory",
        fix="Give it a larger /dev/shm (docker run --shm-size; in Kubernetes an emptyDir of "
        "medium Memory)",
    ),
    Known(
        name="crash",
        signum=signal.SIGSEGV,
        likely="a bug in compiled code: in TensorFlow, a GPU driver, or another package with C or "
        "C++ code",
        fix="The Python stack at the end of the worker's log shows which call crashed. Go back to "
        "the versions that last worked, and check that the GPU driver suits this TensorFlow",
    ),
    Known(
        name="killed",
        signum=signal.SIGKILL,
        likely="something killed it: a person, or a limit of the scheduler or the container",
        fix="dmesg and the scheduler's log may say what did; docker inspect and kubectl describe "
        "tell whether it ran out of memory",
    ),
)


def advice(failure: Failure, differing: Sequence[str] = ()) -> Known | None:
    """Returns what is known about a failure; None for one that says itself what to do.

    Args:
      failure: the first cause.
      differing: machines of the job that have other versions than the first one, and in what; and
        what is newer than what tfrun was tested with.
    """
    kind, message, detail = "", "", failure.tail
    if error := failure.error:
        kind, message, detail = error.type, error.message, error.traceback
    if "TFRUN-" in message or failure.code not in WORKERS_OWN:
        return None  # one of ours, with its own fix
    text = f"{kind}: {message}\n{detail[-4000:]}"
    found = next((known for known in KNOWN if known.fits(failure, text)), None)
    return found or (_unlike(differing) if differing else None)


def _unlike(differing: Sequence[str]) -> Known:
    return Known(
        name="versions",
        likely=f"perhaps different versions of packages: {'; '.join(differing)}",
        fix="On every machine, install the same versions in the Python that runs tfrun, and ones "
        "that tfrun was tested with; tfrun doctor -H … compares the machines",
    )
