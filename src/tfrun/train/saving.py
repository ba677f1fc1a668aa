"""`save`, `save_weights`, `export` and loading of a model that several workers train.

The chief writes, and writes whole files: beside the target, then moved onto it. The others leave
the writing to it. Nothing is collective (a Keras file holds weights and optimizer state, which
each worker has), so it does not matter whether all workers call it or the chief alone. There is
no barrier either: `save` returns on a worker when its own part is done. A worker that loads what
it has "saved" waits until the chief has written it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrun.job.errors import TfrunError
from tfrun.job.world import world
from tfrun.train.agree import multi_worker_strategy
from tfrun.train.local_mode import (
    in_local_mode,
    local_mode,
    variables_distributed,
)
from tfrun.worker import progress

_log = logging.getLogger("tfrun")
_saves: Counter[str] = Counter()  # how often this worker has been asked to save to a path
# Workers reach the same line within a step's time; the largest models take minutes to write.
_START_TIMEOUT_MS = 60_000
_WRITE_TIMEOUT_MS = 1_800_000


def run_save(
    original: Callable[..., Any], model: Any, path: Any, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Writes `path` once, whoever calls `original(model, path, …)`."""
    strategy = multi_worker_strategy(model)
    with progress.pausing():
        return _run_save(original, model, strategy, path, args, kwargs)


def _run_save(
    original: Callable[..., Any],
    model: Any,
    strategy: Any | None,
    path: Any,
    args: tuple,
    kwargs: dict[str, Any],
) -> Any:
    if strategy is None:
        return original(model, path, *args, **kwargs)
    if in_local_mode():
        return _write(original, model, path, args, kwargs)
    key = _key(path)
    _saves[key] += 1
    if not world().is_chief:
        _log.info("The chief writes %s, not worker %d.", path, world().rank)
        return None
    _announce(key, "saving")
    with local_mode(strategy, model):
        result = _write(original, model, path, args, kwargs)
    _announce(key, "saved")
    return result


def wait_until_written(path: Any) -> None:
    """Waits for the chief to write what this worker was asked to save to `path`, if it was."""
    key = _key(path)
    if _saves[key] and not world().is_chief:
        with progress.in_collective():
            _await_announcement(key)


def _write(
    original: Callable[..., Any], model: Any, path: Any, args: tuple, kwargs: dict[str, Any]
) -> Any:
    # A SavedModel's writer enters the save context itself, and reads no metric.
    exports = original.__name__ == "export"
    with variables_distributed() if exports else contextlib.nullcontext():
        asks_first = not kwargs.get("overwrite", args[0] if args else True)
        if not _can_be_moved(path) or asks_first:
            return original(model, path, *args, **kwargs)
        with _beside(Path(path)) as temporary, _naming(path, instead_of=temporary):
            return original(model, str(temporary), *args, **kwargs)


def _can_be_moved(path: Any) -> bool:
    """False for open files, remote paths, and directories: those may hold files of others."""
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        return False
    return not Path(path).is_dir() and Path(path).parent.is_dir()


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yields a path of the same name and file system; what is written there then replaces it.

    Weights in shards are several files: the index, which names the others, moves last.
    """
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield folder / target.name
        written = sorted(folder.iterdir(), key=lambda file: file.name == target.name)
        for file in written:
            file.replace(target.parent / file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _naming(path: Any, *, instead_of: Path) -> Iterator[None]:
    """Shows messages about the temporary path ("Saved artifact at …") with the real one."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    finally:
        sys.stdout.write(said.getvalue().replace(str(instead_of), str(path)))


def _key(path: Any) -> str:
    text = str(path)
    return text if "://" in text else str(Path(text).absolute())


def _announce(key: str, stage: str) -> None:
    """Tells all workers how far the chief is, through TensorFlow's coordination service."""
    _coordination().set_config_key_value(f"tfrun/{stage}/{_saves[key]}{key}", "1")


def _await_announcement(key: str) -> None:
    """Blocks until the chief has written what this worker was asked to write.

    Raises:
      TfrunError: TFRUN-505 when the chief does not, as with a path that differs by worker.
    """
    for stage, timeout in (("saving", _START_TIMEOUT_MS), ("saved", _WRITE_TIMEOUT_MS)):
        name = f"tfrun/{stage}/{_saves[key]}{key}"
        try:
            _coordination().get_config_key_value(name, timeout_in_ms=timeout)
        except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError) as error:
            raise TfrunError(
                "TFRUN-505",
                f"the chief has not saved {key}, and only the chief writes a shared model",
                where=f"worker {world().rank}",
                expected="all workers to save to one path, or the chief alone",
                fix="Save to the same path on every worker",
            ) from error


def _coordination() -> Any:
    """Returns TensorFlow's context, whose key-value store all workers of a job share.

    tensorflow/python/eager/context.py; the store has no public name.
    """
    from tensorflow.python.eager import context

    return context.context()
