"""What is installed, from the packages' metadata, and what TensorFlow says of itself in a child."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tfrun.job.supported_versions import TESTED, distribution_of, version_of
from tfrun.job.version import __version__

SECONDS = 120.0  # importing TensorFlow takes three to ten; from a network disk a minute
ANSWER = "tfrun-env "
# What is behind many failures of the two, beside tfrun's own dependencies.
OTHERS = (
    *("numpy", "protobuf", "grpcio", "h5py", "ml-dtypes", "scipy", "tensorboard"),
    *("tensorflow-io", "tf-keras", "jax", "torch"),
    *("fsspec", "s3fs", "aiobotocore", "gcsfs"),
)
_QUESTION = """
import json, sys
sys.path[:] = [place for place in sys.path if place]
import tensorflow as tf
build = dict(tf.sysconfig.get_build_info())
import keras
print(sys.argv[1] + json.dumps({
    "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
    "cudnn": build.get("cudnn_version") if build.get("is_cuda_build") else None,
    "rocm": bool(build.get("is_rocm_build")),
    "gpus": [gpu.name for gpu in tf.config.list_physical_devices("GPU")],
    "keras": {
        "backend": keras.config.backend(),
        "floatx": keras.config.floatx(),
        "image_data_format": keras.config.image_data_format(),
    },
}))
"""


def packages() -> dict[str, str]:
    """Returns versions by name: TensorFlow and Keras as they are installed, then the others.

    The two are always there, with "" if they are not installed.
    """
    found: dict[str, str] = {}
    for program in TESTED:
        name, version = distribution_of(program)
        found[name or program.lower()] = version
    names = [*OTHERS, *(name for name in _required() if name not in OTHERS)]
    found |= {name: version for name in names if (version := version_of(name))}
    return found


def _required() -> list[str]:
    """The names that tfrun's own metadata asks for without an extra."""
    try:
        lines = importlib.metadata.requires("tfrun") or []
    except importlib.metadata.PackageNotFoundError:  # from a tree that is not installed
        return []
    return [line.partition(">")[0].strip() for line in lines if "extra ==" not in line]


def about_tfrun() -> dict[str, Any]:
    """Returns "version", "where" its files are, and whether it is "editable"."""
    where = str(Path(__file__).parents[2])
    try:
        text = importlib.metadata.distribution("tfrun").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    direct = json.loads(text or "{}")
    editable = bool(direct.get("dir_info", {}).get("editable"))
    return {"version": __version__, "where": where, "editable": editable}


def about_python() -> dict[str, Any]:
    """Returns "version", "implementation", "executable", and whether it is in a "venv"."""
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "venv": sys.prefix != sys.base_prefix,
    }


def ask_tensorflow(seconds: float = SECONDS) -> dict[str, Any]:
    """Imports TensorFlow in a child process, and returns what it says of itself.

    Args:
      seconds: after which the child is ended.

    Returns:
      "cuda", "cudnn": the versions it was built with, None without CUDA; "rocm"; "gpus": those
      that it sees; "keras": its settings. Where it cannot be asked, only "error": why not.
    """
    if not distribution_of("TensorFlow")[1]:
        return {"error": "not installed"}
    command = [sys.executable, "-c", _QUESTION, ANSWER]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing it took more than {seconds:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(ANSWER):
            return json.loads(line.removeprefix(ANSWER))
    if done.returncode < 0:
        return {"error": f"importing it ends in {signal.Signals(-done.returncode).name}"}
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
    return {"error": f"importing it fails: {last[0].strip() if last else 'without a word'}"}
