"""Local mode: the chief uses a distributed model alone, and nothing waits for other workers.

A callback that runs on one worker only must not enter a collective: the others would never join
it. What would enter one in a Keras 3 model under `MultiWorkerMirroredStrategy`:

- reading a sync-on-read (metric) variable: it is summed over the workers;
- `evaluate` and `predict`: the data is sharded, the end of the data is agreed on, and results are
  gathered;
- making a variable under the strategy's scope: its initial value is broadcast.

In local mode each of them means this worker only: a distributed variable acts as its copy on this
worker, the current strategy is TensorFlow's default one, and a call on the multi-worker strategy
itself raises TFRUN-505 instead of waiting for ever. What the block assigned to shared variables
is put back at its end, because the other workers did not assign it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import save_context

from tfrun.engine.agree import spans_workers
from tfrun.engine.scopes import default_strategy
from tfrun.job.errors import TfrunError

# Each of these enters a collective, or prepares one.
_COLLECTIVE_METHODS = (
    "distribute_datasets_from_function",
    "experimental_distribute_dataset",
    "experimental_distribute_values_from_function",
    "gather",
    "reduce",
    "run",
    "scope",
)

_state = threading.local()
# Per model, its test and predict functions traced in local mode: traced once a `fit`.
_functions: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def in_local_mode() -> bool:
    """True while this thread uses distributed models alone."""
    return getattr(_state, "active", False)


@contextlib.contextmanager
def local_mode(strategy: Any, model: Any, *, keep_changes: bool = False) -> Iterator[None]:
    """Makes everything in the block happen on this worker alone. Reentrant.

    Args:
      strategy: the `MultiWorkerMirroredStrategy` of the models in use.
      model: the model in training. Its seeds and statistics, which a forward pass changes, are
        put back without a word.
      keep_changes: leave what was assigned, because the caller hands it to the other workers.

    Raises:
      TfrunError: TFRUN-505 where the block calls a collective method of `strategy`, or has
        changed a weight or an optimizer's variable.
    """
    if in_local_mode():
        yield
        return
    journal: dict[int, tuple[Any, np.ndarray]] = {}
    _state.active, _state.journal = True, None if keep_changes else journal
    try:
        with _refusing(strategy), default_strategy(), variables_as_local_copies():
            yield
            _state.journal = None
            changed = _put_back(journal)
    finally:
        _state.active, _state.journal = False, None
    if changed:
        passing = {id(v) for v in (*model.non_trainable_variables, *model.metrics_variables)}
        for variable in changed:
            if id(variable) not in passing:
                raise refused(f"changing {variable.path}")


def note_assignment(variable: Any) -> None:
    """Remembers what a shared variable was, before it is assigned in local mode."""
    journal = getattr(_state, "journal", None)
    if journal is None or id(variable) in journal or not tf.executing_eagerly():
        return
    if spans_workers(getattr(variable.value, "distribute_strategy", None)):
        journal[id(variable)] = variable, variable.numpy()


def _put_back(journal: dict[int, tuple[Any, np.ndarray]]) -> list[Any]:
    """Returns the variables that had another value at the end than at the beginning."""
    changed = []
    for variable, before in journal.values():
        if not np.array_equal(variable.numpy(), before, equal_nan=before.dtype.kind == "f"):
            changed.append(variable)
        variable.assign(before)
    return changed


@contextlib.contextmanager
def alone(model: Any) -> Iterator[None]:
    """In local mode: lets `model` evaluate and predict on all the given data on this worker.

    The state that a forward pass may change (metrics, seeds, moving statistics) is put back
    afterwards, so this worker stays equal to the others and the epoch's metrics stay theirs.
    """
    assert in_local_mode()
    # The evaluation's assignments happen in its graph, unseen by the journal.
    journal, _state.journal = _state.journal, None
    state = [*model.non_trainable_variables, *model.metrics_variables]
    before = [variable.numpy() for variable in state]
    with _own_functions(model):
        yield
    for variable, value in zip(state, before, strict=True):
        variable.assign(value)
    _state.journal = journal


@contextlib.contextmanager
def on_own_batch(strategy: Any, model: Any) -> Iterator[None]:
    """Lets `model` predict a batch of this worker's, while the others do what they want.

    Args:
      strategy: that it shares with other workers.
      model: the model; it is built.
    """
    with local_mode(strategy, model, keep_changes=True), _own_functions(model):
        yield


@contextlib.contextmanager
def _own_functions(model: Any) -> Iterator[None]:
    """Has `model` use functions that are traced for this worker alone, and no strategy.

    keras/src/backend/tensorflow/trainer.py reads `_distribute_strategy`; Keras 3 has no public
    way to run a model on one worker (keras-team/keras#20585 is the general issue).
    """
    distributed = model._distribute_strategy, model.test_function, model.predict_function
    model._distribute_strategy = None
    model.test_function, model.predict_function = _functions.get(model, (None, None))
    try:
        yield
    finally:
        _functions[model] = model.test_function, model.predict_function
        model._distribute_strategy, model.test_function, model.predict_function = distributed


def forget_functions(model: Any) -> None:
    """Drops what `alone` has traced: `compile` may have changed the losses and metrics."""
    _functions.pop(model, None)


@contextlib.contextmanager
def variables_as_local_copies() -> Iterator[None]:
    """Makes each distributed variable act as its first copy on this worker.

    This is what TensorFlow itself does while it writes a SavedModel: the save context of
    tensorflow/python/saved_model/save_context.py, obeyed by values.py and part of the key under
    which a `tf.function` keeps its traces.
    """
    with save_context.save_context(tf.saved_model.SaveOptions()):
        yield


@contextlib.contextmanager
def variables_distributed() -> Iterator[None]:
    """Undoes `variables_as_local_copies` for a block that enters a save context itself."""
    if not save_context.in_save_context():
        yield
        return
    options = save_context.get_save_options()
    save_context._save_context.exit_save_context()
    try:
        yield
    finally:
        save_context._save_context.enter_save_context(options)


@contextlib.contextmanager
def _refusing(strategy: Any) -> Iterator[None]:
    for name in _COLLECTIVE_METHODS:
        setattr(strategy, name, functools.partial(_refuse, f"strategy.{name}"))
    try:
        yield
    finally:
        for name in _COLLECTIVE_METHODS:
            delattr(strategy, name)


def _refuse(what: str, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise refused(what)


def refused(what: str) -> TfrunError:
    """Returns the error for something that one worker cannot do without the others."""
    return TfrunError(
        "TFRUN-505",
        f"{what} needs every worker, but only the chief runs this callback",
        where="a chief-only callback",
        expected="model.evaluate, predict, save, get_weights or a direct call of the model",
        fix="Pass the callback without ChiefOnly, so that all workers run it",
    )
