"""`--shard-optimizer`: each worker updates some weights, and holds the state of these alone.

ZeRO, stage 1 (Rajbhandari et al. 2020): gradients are summed for the owner of each weight, which
updates it, and gives it to all. That is as many bytes as an all-reduce. A weight is never cut: so
norms are computed as always, and every bit is that of a job without the option.

What one worker alone holds goes with it. A job goes on from a state that all of it is in: the
newest snapshot, for which each machine's first worker asks the others (see asking.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.collective.asking import ANSWER_SECONDS
from tfrun.engine import (
    commit,
    host_collective,
    keras_state,
    replica,
    state_slots,
    variable_values,
)
from tfrun.engine.agree import any_worker
from tfrun.engine.host_collective_ops import as_tensorflow_fails
from tfrun.engine.scopes import default_strategy
from tfrun.engine.shard_owners import owners_of
from tfrun.engine.shareable_optimizers import inner, slot_lists, tables_by_rows, why_whole
from tfrun.engine.state_slots import Moved, Slot
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel

_ATTRIBUTE = "_tfrun_shards"
LOOK_SECONDS = 0.002  # between two looks at whether a step is over: it tells nobody
_made: list[Shards] = []


class Shards:
    """An optimizer that the workers share.

    Args:
      optimizer: built; not a `LossScaleOptimizer` but what is inside.
      strategy: of its variables.
      whole: the ids of weights that all update.

    Attributes:
      owners: of the optimizer's weights, by rank; None: all update it.
      updated: the weights that the update being traced is of.
      slots: the optimizer's variables that one worker each holds.
    """

    def __init__(self, optimizer: Any, strategy: Any, whole: frozenset[int]) -> None:
        self.calls: Any = host_collective.calls_of(strategy)
        self.rank, workers = self.calls.group.rank, self.calls.group.world
        self._weights = list(optimizer._trainable_variables)
        lists = slot_lists(optimizer)
        sizes = [0 if id(v) in whole else _bytes(v) for v in self._weights]
        found = owners_of(sizes, workers)
        self.owners = [
            None if id(v) in whole else owner for v, owner in zip(self._weights, found, strict=True)
        ]
        self._owner = {
            optimizer._var_key(v): owner
            for v, owner in zip(self._weights, self.owners, strict=True)
        }
        self._key = optimizer._var_key
        self.updated: Sequence[Any] = ()
        with default_strategy(), tf.device("CPU:0"):
            # Updates that have begun, and that are done: equal between two of them.
            self._begun, self._done = (
                tf.Variable(tf.zeros([], tf.int64), trainable=False) for _ in range(2)
            )
        self.slots: list[Slot] = []
        self._place: dict[int, int] = {}
        self._slot_owner: dict[int, int | None] = {}
        for each in lists.values():
            for slot, owner in zip(each, self.owners, strict=True):
                if slot is not None:
                    self._slot_owner[id(slot)] = owner
                    if owner is not None:
                        self._place[id(slot)] = len(self.slots)
                        self.slots.append(state_slots.make(slot, self, owner))
        every = [slot for each in lists.values() for slot in each if slot is not None]
        self._whole_bytes = sum(_bytes(s) for s in every if self._slot_owner[id(s)] is None)
        self._here: set[int] = set()  # ids of others' slots that have memory here
        self.number = len(_made)
        _made.append(self)
        self.release(self.slots)
        self.calls.group.asking.answer_with(_answer)

    # --- what an update needs ------------------------------------------------------------------

    def owner(self, variable: Any) -> int | None:
        """The rank of who updates a weight; None: all do."""
        return self._owner.get(self._key(variable))

    def is_mine(self, variable: Any) -> bool:
        """Whether this worker updates a weight."""
        return self.owner(variable) in (None, self.rank)

    def holds(self, slot: Any) -> bool:
        """Whether a variable that belongs to a weight is updated here; None is."""
        return slot is None or self._slot_owner.get(id(slot)) in (None, self.rank)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts an update before all that the block does to variables, and after it."""
        with (
            commit.acting() as updates,
            tf.control_dependencies([self._begun.assign_add(1, read_value=False)]),
        ):
            yield
        with tf.control_dependencies(updates):
            self._done.assign_add(1, read_value=False)

    def give(self, run: replica.ReplicaRun) -> None:
        """Gives all workers the weights that this one has updated, and takes theirs."""
        pairs = [(v, o) for v, o in zip(self._weights, self.owners, strict=True) if o is not None]
        owners = [owner for _, owner in pairs]
        kinds = [(tuple(v.shape), v._value.dtype) for v, _ in pairs]
        own = [tf.convert_to_tensor(v._value) for v, owner in pairs if owner == self.rank]
        values = self.calls.give_owned(own, owners, kinds, self._let_go)
        for (variable, _), value in zip(pairs, values, strict=True):
            if value is not None:
                keras_state.assign_here(run, variable, value)

    def _let_go(self) -> None:
        """What was fetched is old from now on."""
        if self._here:
            self.release([slot for slot in self.slots if id(slot) in self._here])

    # --- where slots are -----------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes of slots in this worker's memory."""
        return sum(_bytes(slot) for slot in self.slots if self.is_here(slot)) + self._whole_bytes

    @property
    def all_bytes(self) -> int:
        """Bytes of slots in all workers' memories, each one counted once."""
        return sum(map(_bytes, self.slots)) + self._whole_bytes

    def is_here(self, slot: Slot) -> bool:
        """Whether a slot has its value in this worker's memory."""
        return slot.owner == self.rank or id(slot) in self._here

    def store(self, slot: Slot, value: NDArray) -> None:
        """Gives a slot a value that it has on all workers."""
        for copy in variable_values.copies(slot):
            _store(copy, value)
        if slot.owner != self.rank:
            self._here.add(id(slot))

    def release(self, slots: Sequence[Slot]) -> None:
        """Frees the memory of those slots that others own."""
        for slot in slots:
            if slot.owner != self.rank:
                for copy in variable_values.copies(slot):
                    _store(copy, np.zeros((0,), copy.dtype.as_numpy_dtype))
                self._here.discard(id(slot))

    def fill(self, slots: Sequence[Slot]) -> None:
        """Fetches the values of slots that are not here; until the next update they are."""
        away = [slot for slot in slots if not self.is_here(slot)]
        if not away:
            return
        for slot, value in zip(away, self.fetch(away), strict=True):
            self.store(slot, value)

    def fetch(self, slots: Sequence[Slot]) -> list[NDArray]:
        """The values of slots, between two updates; from any thread.

        Raises:
          tf.errors.UnavailableError: a peer that holds some has gone.
          Moved: an update has begun meanwhile.
        """
        count = int(variable_values.read(self._done))
        if int(variable_values.read(self._begun)) != count:
            raise Moved
        found: dict[int, NDArray] = {
            id(slot): variable_values.read(variable_values.copies(slot)[0]).numpy()
            for slot in slots
            if self.is_here(slot)
        }
        for owner in sorted({slot.owner for slot in slots if id(slot) not in found}):
            its = [slot for slot in slots if slot.owner == owner and id(slot) not in found]
            arrays = [np.empty(tuple(s.shape), s._value.dtype.as_numpy_dtype) for s in its]
            question = {
                "shards": self.number,
                "count": count,
                "slots": [self._place[id(slot)] for slot in its],
            }
            with as_tensorflow_fails():
                answer = self.calls.group.asking.ask(owner, question, arrays)
            if not answer["comes"]:
                raise Moved(answer.get("why", "it has something else in that place"))
            found |= zip(map(id, its), arrays, strict=True)
        if int(variable_values.read(self._begun)) != count:
            raise Moved
        return [found[id(slot)] for slot in slots]

    def answer(self, question: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[NDArray]]:
        """The values of this worker's slots for another one, as of a number of updates."""
        count, until = question["count"], time.monotonic() + ANSWER_SECONDS
        while int(variable_values.read(self._done)) < count:  # this worker is a little later
            if time.monotonic() > until:
                return {"why": "it is behind"}, []
            time.sleep(LOOK_SECONDS)
        chosen = [self.slots[place] for place in question["slots"]]
        values = [variable_values.read(variable_values.copies(s)[0]) for s in chosen]
        if int(variable_values.read(self._begun)) != count:
            return {"why": "it is ahead"}, []
        return {}, [value.numpy() for value in values]


def _answer(question: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[NDArray]]:
    until = time.monotonic() + ANSWER_SECONDS
    while question["shards"] >= len(_made):  # it has come to its training a little sooner
        if time.monotonic() > until:
            return {"why": "it has no such optimizer"}, []
        time.sleep(LOOK_SECONDS)
    return _made[question["shards"]].answer(question)


def _store(copy: Any, value: NDArray) -> None:
    """Gives a TensorFlow variable a value of any shape, past the check of it."""
    with tf.device(copy.device):
        tf.raw_ops.AssignVariableOp(resource=copy.handle, value=tf.constant(value, copy.dtype))


def _bytes(variable: Any) -> int:
    return int(np.prod(tuple(variable.shape))) * tf.as_dtype(variable.dtype).size


def of(optimizer: Any) -> Shards | None:
    """How the workers share an optimizer; None: each has all of it."""
    return inner(optimizer).__dict__.get(_ATTRIBUTE)


def updating(optimizer: Any) -> Shards | None:
    """The same, while it updates what it is given."""
    run = replica.current()
    return of(optimizer) if run is not None and run.updating else None


def of_model(model: Any) -> Shards | None:
    """How the workers share the optimizer of a model."""
    optimizer = getattr(model, "optimizer", None)
    return None if optimizer is None else of(optimizer)


def begin(model: Any, strategy: Any) -> None:
    """A `fit` begins: shares the model's optimizer among the workers, where that can be.

    All workers call this, with equal variables.
    """
    if not settings().shard_optimizer or of_model(model) is not None:
        return
    why = why_whole(model, strategy)
    optimizer = getattr(model, "optimizer", None)
    if why:
        _tell(f"--shard-optimizer leaves the optimizer as it is on every worker: {why}")
        return
    real = inner(optimizer)
    made = Shards(real, strategy, tables_by_rows(model, real))
    object.__setattr__(real, _ATTRIBUTE, made)
    model.make_train_function(force=True)
    _tell(
        f"the optimizer's state is shared by {made.calls.group.world} workers: "
        f"{made.held_bytes / 1e6:,.1f} of {made.all_bytes / 1e6:,.1f} MB are on this one"
    )


def refuse_in_loop(optimizers: Sequence[Any]) -> None:
    """A loop of the script's own keeps its state itself: it can share no optimizer.

    Args:
      optimizers: that it trains.

    Raises:
      TfrunError: TFRUN-519 where a `fit` has shared one of them.
    """
    for optimizer in optimizers:
        for slot in slots_of(optimizer):
            raise state_slots.elsewhere(slot)
    if settings().shard_optimizer:
        _tell("--shard-optimizer is for `fit`: this loop's optimizer is whole on every worker")


def slots_of(optimizer: Any) -> list[Slot]:
    """The variables of an optimizer that one worker each holds."""
    made = of(optimizer)
    return made.slots if made is not None else []


def end(model: Any, strategy: Any) -> None:
    """A `fit` ends: the chief has all from now on, and nobody leaves before; a collective."""
    made = of_model(model)
    if made is not None:
        if world().is_chief:
            made.fill(made.slots)
        any_worker(strategy, [True])


def _tell(text: str) -> None:
    if world().is_chief:
        channel.emit(reports.WorkerNotice(text=text))
