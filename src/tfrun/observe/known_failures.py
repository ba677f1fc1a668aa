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
        likely="it made no step for --hang-timeout: a lock, a slow disk, or data that does not "
        "arrive",
        fix="Its log shows the Python stack where it was; set a longer --hang-timeout if this is "
        "expected",
    ),
    Known(
        name="host memory, killed",
        out_of_memory=True,
        likely="the machine, or the container, has no memory left",
        fix="Fewer workers on the machine, a smaller batch (tfrun tune finds the largest that "
        "fits), less shuffle and cache; tfrun status shows the memory of each worker",
    ),
    Known(
        name="disk full",
        pattern=r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b",
        likely="a disk, or /dev/shm, is full",
        fix="Make room, or name other directories with --run-dir and --checkpoint-dir; --keep "
        "says how many checkpoints stay",
    ),
    Known(
        name="GPU memory",
        pattern=r"OOM when allocating tensor.*(?i:gpu)|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA out of memory|failed to allocate .* from device",
        likely="the model and its batch do not fit into the GPU's memory, or others use it too",
        fix="A smaller batch on each worker (tfrun tune finds the largest that fits); nvidia-smi "
        "shows who else is there",
    ),
    Known(
        name="host memory, refused",
        pattern=r"\bMemoryError\b|Unable to allocate [\d.]+ .iB|std::bad_alloc"
        r"|OOM when allocating tensor|Cannot allocate memory",
        likely="an array or a tensor is larger than the memory that is left",
        fix="A smaller batch; read the data piece by piece (tfrun.Dataset, tf.data) instead of "
        "holding all of it in each worker",
    ),
    Known(
        name="NCCL without a network",
        pattern=r"no socket interface found|ncclSystemError"
        r"|NCCL.*(unhandled system error|Bootstrap)",
        likely="NCCL does not find the network between the machines",
        fix="Set NCCL_SOCKET_IFNAME to the interface that they share and pass it on with --env; "
        "NCCL_DEBUG=INFO shows what it tries; --communication ring does without NCCL",
    ),
    Known(
        name="NCCL",
        pattern=r"ncclInternalError|ncclUnhandledCudaError|NCCL (error|failure)|\bncclCommInit"
        r"|NCCL: (invalid usage|internal error|unhandled cuda error)|Duplicate GPU detected",
        likely="the GPUs of the workers cannot talk to each other: drivers, topology or versions",
        fix="NCCL_DEBUG=INFO shows where it fails; tfrun doctor compares the machines; "
        "--communication ring does without NCCL",
    ),
    Known(
        name="port in use",
        pattern=r"Address already in use|Errno 98\b|Could not start gRPC server|EADDRINUSE",
        likely="another process listens on a port that this one was to have",
        fix="ss -ltnp shows whose it is; without fixed ports (--cluster, TF_CONFIG) tfrun finds "
        "free ones",
    ),
    Known(
        name="different versions",
        pattern=r"may indicate binary incompatibility|compiled (using|against) (NumPy|API version)"
        r"|incompatible Protobuf Gencode/Runtime|Descriptors cannot be created directly"
        r"|undefined symbol: |version `(GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        likely="packages, or libraries of the system, were built for other versions of each other",
        fix="Reinstall TensorFlow, Keras and NumPy, in the same versions on every machine; "
        "tfrun doctor compares them",
    ),
    Known(
        name="package missing",
        pattern=r"ModuleNotFoundError.*No module named|ImportError.*cannot import name",
        likely="the package is not installed in this machine's Python, or in another version",
        fix="Install the same versions in the Python that runs tfrun on every machine; "
        "--remote-python names it, tfrun doctor compares them",
    ),
    Known(
        name="GPU libraries",
        pattern=r"DNN library (is not found|initialization failed)|no kernel image is available"
        r"|CUDA driver version is insufficient|Loaded runtime CuDNN library",
        likely="the driver, CUDA and cuDNN on this machine do not fit this TensorFlow",
        fix="pip install 'tensorflow[and-cuda]' brings the libraries that do; the driver must be "
        "new enough for them (nvidia-smi)",
    ),
    Known(
        name="no data",
        pattern=r"Unexpected result of `(train|test)_function` \(Empty Logs\)"
        r"|PyDataset has length 0|did not yield any|ran out of data|dataset (is|was) empty",
        likely="this worker got no batch: its share of the data is empty",
        fix="More samples, or files, than workers; drop_remainder and take() may leave fewer than "
        "you expect; tfrun.Dataset divides any number of them",
    ),
    Known(
        name="labels outside of the classes",
        pattern=r"Received a label value of .* outside the valid range",
        likely="the labels do not fit the number of the model's outputs",
        fix="As many outputs as classes; labels that begin at 0",
    ),
    Known(
        name="shapes after a resume",
        pattern=r"(?is)(load_weights|restore|load_own_variables|checkpoint).*"
        r"(shape mismatch|shapes? .* (not |in)compatible|different shape|expected shape)"
        r"|objects could not be loaded.*shape of the target"
        r"|tensor with shape .* when attempting to restore variable with shape",
        likely="what was saved belongs to another model: it was changed since",
        fix="Build the model as it was, or begin anew with --fresh or another --checkpoint-dir",
    ),
    Known(
        name="a part of the batch",
        pattern=r"slice index \d+ of dimension 0 out of bounds"
        r"|Cannot reshape a tensor with \d+ elements|Input to reshape is a tensor with \d+ values"
        r"|must match\. variable\.shape=.* Received: value\.shape=\(0,"
        r"|Incompatible shapes: \[(\d+)((?:,\d+)+)\] vs\. \[(?!(?:1|\1),)\d+\2\]"
        r"|got None of type 'NoneType'|None values not supported|If an RNN is stateful, the batch",
        likely="the script relies on whole batches (x.shape[0], BATCH_SIZE in a reshape, a layer's "
        "batch_shape), "
        "and each of several workers has a part of the rows",
        fix="Take the number of rows from the tensor (-1, tf.shape(x)[0]), and make samples the "
        "first dimension. x.shape[0] is known with drop_remainder=True, if the number of workers "
        "divides the batch size and there is no steps_per_execution. Or train with -n 1",
    ),
    Known(
        name="numbers of rows",
        pattern=r"indices\[[\d, ]*\] = -?\d+ is not in \[0, \d+\)",
        likely="a number is larger than the table that it points into: an Embedding with too small "
        "an input_dim; or rows of the batch that samples point to (graphs merged into one), of "
        "which each of several workers has a part",
        fix="Compare input_dim with the largest number; pad each sample to one size and merge "
        "them in the model, so that all first dimensions are the samples'; or train with -n 1",
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
        likely="a file of records was cut off while it was written or copied, or holds other data",
        fix="Write or copy it again; with tf.data, ignore_errors() leaves damaged records out",
    ),
    Known(
        name="not a number",
        pattern=r"Tensor had (NaN|-?Inf)|(?i:loss) is (nan|inf|not finite)",
        likely="the training has diverged, or the data holds values that are not numbers",
        fix="A lower learning rate, clipnorm in the optimizer; look for NaN in the data. With more "
        "workers and a larger batch, tfrun.scaled_lr warms the rate up",
    ),
    Known(
        name="too many open files",
        pattern=r"Too many open files|Errno 24\b",
        likely="more files and connections are open than this process may have",
        fix="ulimit -n 65536 before tfrun, or fewer files read at once",
    ),
    Known(
        name="permission",
        pattern=r"PermissionError|Permission denied",
        likely="this user may not read or write that path on this machine",
        fix="Look at its owner and mode there; on other machines it may be another user's",
    ),
    Known(
        name="file missing",
        pattern=r"FileNotFoundError|NotFoundError.*No such file or directory",
        likely="the file is not there on this worker's machine",
        fix="A path that all machines see, or --sync to copy the script's directory; relative "
        "paths begin at --remote-dir",
    ),
    Known(
        name="illegal instruction",
        signum=signal.SIGILL,
        likely="this processor lacks instructions that a library was built for",
        fix="Another build of it, or another machine (TensorFlow's packages need AVX)",
    ),
    Known(
        name="bus error",
        signum=signal.SIGBUS,
        likely="/dev/shm is full, or a file that was mapped into memory has become shorter",
        fix="A larger /dev/shm (docker run --shm-size, an emptyDir of medium Memory in Kubernetes)",
    ),
    Known(
        name="crash",
        signum=signal.SIGSEGV,
        likely="a bug in compiled code: TensorFlow, a driver, or another package with C++",
        fix="The end of the worker's log shows Python's stack; try without the newest package, "
        "and see whether the drivers fit",
    ),
    Known(
        name="killed",
        signum=signal.SIGKILL,
        likely="something ended it: a person, or a limit of a scheduler or a container",
        fix="dmesg and the scheduler's log say who; docker inspect and kubectl describe say "
        "whether it was for memory",
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
        likely=f"perhaps the versions of what is installed: {'; '.join(differing)}",
        fix="Install the same ones in the Python that runs tfrun on every machine, of those that "
        "it was tested with; tfrun doctor -H … compares them",
    )
