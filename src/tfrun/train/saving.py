"""`save`, `save_weights`, `export` and loading of a model that several workers train.

The chief writes, and writes whole files: beside the target, then moved onto it. The others leave
the writing to it. Nothing is collective (a Keras file holds weights and optimizer state, which
each worker has), so it does not matter whether all workers call it or the chief alone. There is
no barrier either: `save` returns on a worker when its own part is done, but in a script that was
written for one machine, which looks at the file in its next line. A worker that loads
something waits until the chief has written what this worker "saved" to that path; or, where it
saved elsewhere, as TensorFlow's tutorial has it, what the chief saved at the same place.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

from tfrun.engine import adoption, between_steps, multi_worker
from tfrun.engine.agree import multi_worker_strategy
from tfrun.engine.local_mode import in_local_mode, local_mode, variables_distributed
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import progress
from tfrun.state import next_round
from tfrun.train import chief_journal
from tfrun.train.chief_journal import Call, ChiefCall

_log = logging.getLogger("tfrun")
_asked: dict[str, Call] = {}  # by path, how this worker was asked to save it last
_state = threading.local()
_pending: dict[str, Call] = {}  # those of them that it has not waited for


def run_save(
    original: Callable[..., Any], model: Any, path: Any, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Writes `path` once, whoever calls `original(model, path, …)`."""
    # A FeatureSpace is no model, and each worker has one of its own.
    is_model = isinstance(model, keras.Model)
    strategy = multi_worker_strategy(model) if is_model else multi_worker.newest()
    with progress.pausing():
        writes = getattr(_state, "writes", False)  # Keras's methods call functions
        if writes or (strategy is None and world().size == 1):
            return original(model, path, *args, **kwargs)
        if strategy is None or in_local_mode():  # several that train alone may write the same file
            return _write(original, model, path, args, kwargs)
        call = chief_journal.call(key_of(path))
        if not world().is_chief:
            between_steps.note_left_to_the_chief()
            _asked[call.path] = _pending[call.path] = call
            _log.info("The chief writes %s, not worker %d.", path, world().rank)
            if strategy is adoption.given():
                wait_until_written(path)  # a script of one machine finds there what it has saved
            return None
        with telling(call), local_mode(strategy, model):
            return _write(original, model, path, args, kwargs)


@contextlib.contextmanager
def telling(call: Call) -> Iterator[dict[str, Any]]:
    """Tells the other workers when the chief begins and ends a save; what is yielded goes along."""
    number, result = chief_journal.writer.begin(call), {}
    try:
        yield result
    except Exception as error:
        chief_journal.writer.fail(number, error)
        raise
    chief_journal.writer.end(number, result)


def wait_until_written(path: Any) -> bool:
    """Waits for what the chief writes and this worker may be about to load, if it was asked to.

    Returns:
      Whether it was.

    Raises:
      TfrunError: TFRUN-505 when it was asked to save to `path`, and the chief has not done so.
      Exception: that of the chief, when it could not write.
    """
    if world().is_chief or in_local_mode() or settings().rehearses:
        return False  # what comes before the call that the job is in has been written
    call = _asked.get(key_of(path))
    with progress.in_collective():
        if call is not None:
            _pending.pop(call.path, None)
            reader, seconds = chief_journal.reader, chief_journal.START_SECONDS
            save = reader.find(_meets(call), seconds) or reader.find(
                lambda save: (save.path, save.path_nth) == (call.path, call.path_nth), 0
            )
            if save is None:
                raise chief_journal.not_saved(call.path)
            reader.result(save)
            if save.path != call.path:
                _copy(save.path, call.path)
            return True
        asked = list(_pending.values())
        for pending in asked:
            del _pending[pending.path]
            save = chief_journal.reader.find(_meets(pending), chief_journal.START_SECONDS)
            if save is not None:
                chief_journal.reader.wait(save)
        return bool(asked)


def _copy(written: str, path: str) -> None:
    """Brings what the chief has written elsewhere (in a `tempfile.mkdtemp()` of its own, as in
    TensorFlow's tutorials) to where this worker was asked to save the same.

    Raises:
      TfrunError: TFRUN-505 when it cannot be seen from here.
    """
    if not Path(written).is_file():
        raise chief_journal.not_saved(path)
    with _beside(Path(path)) as temporary:
        shutil.copy2(written, temporary)


def _meets(call: Call) -> Callable[[ChiefCall], bool]:
    return lambda save: save.meets(call)


def _write(
    original: Callable[..., Any], model: Any, path: Any, args: tuple, kwargs: dict[str, Any]
) -> Any:
    # A SavedModel's writer enters the save context itself, and reads no metric.
    exports = original.__name__ == "export"
    asks_first = not kwargs.get("overwrite", args[0] if args else True)
    _state.writes = True
    try:
        with variables_distributed() if exports else contextlib.nullcontext():
            if not _can_be_moved(path) or asks_first:
                return original(model, path, *args, **kwargs)
            with _beside(Path(path)) as temporary, _naming(path, instead_of=temporary):
                return original(model, str(temporary), *args, **kwargs)
    finally:
        _state.writes = False


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


def _begin_anew() -> None:
    """The chief has written all that it was asked to, in a round that is over."""
    _asked.clear()
    _pending.clear()
    chief_journal.begin_anew()


def key_of(path: Any) -> str:
    """The same text for the same path, however it was written."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else str(path)
    return text if "://" in text else str(Path(text).absolute())


next_round.when_moved(_begin_anew)
