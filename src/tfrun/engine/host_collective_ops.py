"""The host collective as operations of a TensorFlow graph.

They run one after the other on every worker: each reads and writes a variable of ours, and
TensorFlow keeps the order of what uses the same variable, through functions, loops and conditions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfrun.collective import collective
from tfrun.collective.counts import Gradients
from tfrun.collective.errors import Disagreement, PeerAbsent, PeerGone
from tfrun.collective.packing import layout_of_kinds
from tfrun.engine.counted_after import may_be_exchanged
from tfrun.engine.gradient_order import Stages
from tfrun.engine.overlap import OneThread, packs_of

OnArrays = Callable[[list[np.ndarray]], list[np.ndarray]]


def nothing() -> None:
    """Nobody has anything to do before a wait."""


@dataclass(frozen=True, kw_only=True)
class Empty:
    """Those of some tensors that count as zeros on a worker without samples: they may be NaN there.

    Attributes:
      which: their positions.
      samples: scalar: this worker's number of samples.
      nans: only what is NaN in them counts as zero: without a sample, nothing else comes of one.
    """

    which: Collection[int]
    samples: Any
    nans: bool = False


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A sum of some tensors over the workers.

    Attributes:
      tensors: of any shapes and dtypes; numpy's too when TensorFlow executes eagerly.
      gradients: which of them may travel compressed; their version is an integer scalar.
      empty: which of them may count as zeros.
    """

    tensors: Sequence[Any]
    gradients: Gradients | None = None
    empty: Empty | None = None

    def part(self, which: Sequence[int], name: str) -> Sum:
        """The sum of the tensors at these positions; `name` tells its gradients from others'."""
        place = {position: i for i, position in enumerate(which)}

        def here(some: Any) -> Any:
            found = [place[i] for i in some.which if i in place] if some else []
            return replace(some, which=frozenset(found)) if found else None

        gradients = here(self.gradients)
        if gradients:
            gradients = replace(gradients, name=gradients.name + name)
        tensors = [self.tensors[i] for i in which]
        return Sum(tensors=tensors, gradients=gradients, empty=here(self.empty))

    @property
    def inputs(self) -> list[tf.Tensor]:
        """What `on` is called with in the graph."""
        said = [self.gradients.version] if self.gradients else []
        said += [self.empty.samples] if self.empty else []
        return [*map(tf.convert_to_tensor, said), *self.tensors]

    def read(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Gradients | None]:
        """What is to be summed, and which of it are gradients, from the values of `inputs`."""
        values = list(arrays)
        gradients = self.gradients
        if gradients:
            gradients = replace(gradients, version=int(values.pop(0)))
        if self.empty and not values.pop(0):
            for i in self.empty.which:
                mine, zeros = values[i], np.zeros_like(values[i])
                values[i] = np.where(np.isnan(mine), zeros, mine) if self.empty.nans else zeros
        return values, gradients

    def on(self, members: collective.Collective, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums, from the values of `inputs`."""
        return members.all_reduce(*self.read(arrays))


class Calls:
    """Collectives as operations of a graph, or at once when TensorFlow executes eagerly.

    Args:
      members: the workers.
      overlaps: sums begin before all that is to be summed is there, see overlap.py.

    Attributes:
      group: the workers; this one alone, while it stands apart.
      joins: the workers that it joins then; None while it is with them.
      largest: bytes of the largest sum of all that has been traced.
    """

    largest = 0

    def __init__(self, members: collective.Collective, *, overlaps: bool = False) -> None:
        self.group = members
        self.joins: collective.Collective | None = None
        self._thread = OneThread() if overlaps else None
        self._begun: list[Future[list[np.ndarray]]] = []
        with tf.init_scope(), tf.device("CPU:0"):
            # Past the strategy, as TensorFlow's own ordering tokens.
            self._order = resource_variable_ops.ResourceVariable(0)

    @property
    def overlaps(self) -> bool:
        """Whether sums begin before all that is to be summed is there."""
        return self._thread is not None

    def note_sum(self, tensors: Sequence[tf.Tensor]) -> None:
        """These are about to be traced as one sum."""
        known: list[Any] = [t for t in tensors if t.shape.is_fully_defined()]
        shapes = tuple(tuple(tensor.shape) for tensor in known)
        dtypes = tuple(np.dtype(tensor.dtype.as_numpy_dtype) for tensor in known)
        packs = layout_of_kinds(shapes, dtypes).packs
        self.largest = max(self.largest, *(n * dtype.itemsize for dtype, n in packs), 0)

    def stand_apart(self) -> None:
        """Until `join`, what this worker calls is no collective: the others do not call it."""
        self.joins = self.joins or self.group
        self.group = collective.Collective(0, {}, 1)

    def join(self) -> None:
        """From now on it calls what the others call."""
        if self.joins is not None:
            self.group, self.joins = self.joins, None

    def all_reduce(self, wanted: Sum, before: Callable[[], None] = nothing) -> list[tf.Tensor]:
        """Sums each tensor over the workers, and returns the sums.

        Args:
          wanted: the sum.
          before: is called before what waits for all tensors is put into the graph. TensorFlow
            keeps the order of what it knows nothing of: what `before` adds stops nothing else.
        """
        tensors = wanted.tensors
        packs = self._packs(tensors)
        if len(packs) > 1:
            sums = self._in_packs(wanted, packs, before)
        else:
            before()
            sums = self._call(
                lambda arrays: wanted.on(self.group, arrays),  # of whichever round it is then
                wanted.inputs,
                [tensor.dtype for tensor in tensors],
            )
        for total, tensor in zip(sums, tensors, strict=True):
            total.set_shape(tensor.shape)
        return sums

    def _packs(self, tensors: Sequence[Any]) -> list[list[int]]:
        """The positions of what is summed together, in the order in which it is there.

        Fewer than two packs where sums begin when all is there.
        """
        if self._thread is None or tf.executing_eagerly():
            return []
        # What is not known yet comes last: nothing else is made to wait for it.
        return packs_of([None if may_be_exchanged(t) else _bytes_of(t) for t in tensors])

    def _in_packs(
        self, wanted: Sum, packs: Sequence[Sequence[int]], before: Callable[[], None]
    ) -> list[tf.Tensor]:
        order = [i for pack in packs for i in pack]
        stages = Stages([[wanted.tensors[i] for i in pack] for pack in packs])
        begun = [self._begin(wanted.part(pack, str(k)), k) for k, pack in enumerate(packs)]
        stages.follow(begun)
        before()
        dtypes = [wanted.tensors[i].dtype for i in order]
        sums = dict(zip(order, self._call(self._finish, begun, dtypes, waits=True), strict=True))
        return [sums[i] for i in range(len(order))]

    def sum_owned(self, wanted: Sum, owners: Sequence[int]) -> list[tf.Tensor | None]:
        """Sums each tensor over the workers, for its owner alone.

        Args:
          wanted: the sum.
          owners: the rank of each tensor's.

        Returns:
          The sums of this worker's own, and None in place of the others.
        """
        mine = [i for i, owner in enumerate(owners) if owner == self.group.rank]

        def on(arrays: list[np.ndarray]) -> list[np.ndarray]:
            found = self.group.sum_owned(wanted.read(arrays)[0], owners)
            return [total for total in found if total is not None]

        dtypes = [wanted.tensors[i].dtype for i in mine]
        sums: list[tf.Tensor | None] = [None] * len(owners)
        for i, total in zip(mine, self._call(on, wanted.inputs, dtypes), strict=True):
            total.set_shape(wanted.tensors[i].shape)
            sums[i] = total
        return sums

    def give_owned(
        self,
        tensors: Sequence[tf.Tensor],
        owners: Sequence[int],
        kinds: Sequence[tuple[tuple[int, ...], tf.DType]],
        given: Callable[[], None],
    ) -> list[tf.Tensor | None]:
        """Gives what each worker owns to all others.

        Args:
          tensors: of this worker's own, in their order.
          owners: of all, by rank.
          kinds: shape and dtype of all.
          given: is called when all have been given.

        Returns:
          What others own, and None in place of this worker's own.
        """
        theirs = [i for i, owner in enumerate(owners) if owner != self.group.rank]
        empty = [
            np.broadcast_to(np.zeros((), dtype.as_numpy_dtype), shape) for shape, dtype in kinds
        ]

        def on(arrays: list[np.ndarray]) -> list[np.ndarray]:
            own = iter(arrays)
            every = [empty[i] if i in others else next(own) for i in range(len(owners))]
            found = self.group.give_owned(every, owners)
            given()
            return [value for value in found if value is not None]

        others = frozenset(theirs)
        values: list[tf.Tensor | None] = [None] * len(owners)
        results = self._call(on, tensors, [kinds[i][1] for i in theirs])
        for i, value in zip(theirs, results, strict=True):
            value.set_shape(kinds[i][0])
            values[i] = value
        return values

    def all_gather(self, tensors: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
        """Each tensor's parts of all workers, one after the other along its axis."""

        def gather(arrays: list[np.ndarray]) -> list[np.ndarray]:
            return joined_along(axes, self.group.all_gather(arrays))

        joined = self._call(gather, tensors, [t.dtype for t in tensors])
        for whole, tensor, axis in zip(joined, tensors, axes, strict=True):
            if tensor.shape.rank is not None:
                shape = tensor.shape.as_list()
                shape[axis] = None
                whole.set_shape(shape)
        return joined

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        def send(arrays: list[np.ndarray]) -> list[np.ndarray]:
            return [self.group.broadcast(arrays[0])]

        (value,) = self._call(send, [tensor], [tensor.dtype])
        value.set_shape(tensor.shape)
        return value

    def give(self, arrays: Sequence[np.ndarray], has: Sequence[bool]) -> None:
        """As `Collective.give`, at once."""

        def give(found: list[np.ndarray]) -> list[np.ndarray]:
            self.group.give(found, has)
            return found

        with as_tensorflow_fails():
            self._in_order(give)(list(arrays))

    def _begin(self, wanted: Sum, number: int) -> tf.Tensor:
        """Hands a sum to the thread, as the step's `number`th; what this returns says that it is.

        The arrays are TensorFlow's own memory, which it keeps for as long as they are there.
        """
        return self._when_there(
            lambda *arrays: self._submit(functools.partial(wanted.on, self.group, arrays)),
            wanted.inputs,
            number,
        )

    def _submit(self, function: Callable[[], list[np.ndarray]]) -> None:
        thread: Any = self._thread
        self._begun.append(thread.submit(function))

    def _when_there(
        self, begin: Callable[..., None], inputs: Sequence[Any], number: int
    ) -> tf.Tensor:
        """Has `begin` called with what `inputs` are, as the step's `number`th of its kind."""

        def on_arrays(_, *arrays: np.ndarray) -> np.int32:
            if not number:
                self._begun.clear()  # of a step that has failed
            begin(*arrays)
            return np.int32(number)

        with tf.device("CPU:0"):
            before = tf.raw_ops.ReadVariableOp(resource=self._order.handle, dtype=tf.int32)
            begun = tf.numpy_function(on_arrays, [before, *inputs], tf.int32)
            begun.set_shape([])
            tf.raw_ops.AssignVariableOp(resource=self._order.handle, value=begun)
        return begun

    def _finish(self, _: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums of all that has begun."""
        begun, self._begun = self._begun, []
        return [total for future in begun for total in future.result()]

    def _in_order(self, function: OnArrays) -> OnArrays:
        """`function`, after all that has begun."""
        thread = self._thread
        if thread is None:
            return function
        return lambda arrays: thread.submit(lambda: function(arrays)).result()

    def _call(
        self,
        function: OnArrays,
        tensors: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType],
        *,
        waits: bool = False,
    ) -> list[tf.Tensor]:
        """Has `function` called with the values of `tensors`.

        Args:
          function: a collective, or with `waits` what waits for some.
          tensors: any.
          dtypes: of what it returns.
          waits: see there.
        """
        function = function if waits else self._in_order(function)
        if tf.executing_eagerly():
            with as_tensorflow_fails():
                results = function([np.asarray(tensor) for tensor in tensors])
            return [tf.constant(r, t) for r, t in zip(results, dtypes, strict=True)]

        def on_arrays(_, *arrays: np.ndarray) -> list[np.ndarray]:
            try:
                return [_said(""), *function(list(arrays))]
            except (PeerGone, PeerAbsent, Disagreement) as error:
                # Raised from here, TensorFlow would log a traceback of Python's.
                nothing = [np.zeros((), dtype.as_numpy_dtype) for dtype in dtypes]
                return [_said(f"{type(error).__name__}: {error}"), *nothing]

        with tf.device("CPU:0"):
            before = tf.raw_ops.ReadVariableOp(resource=self._order.handle, dtype=tf.int32)
            failure, *results = tf.numpy_function(
                on_arrays, [before, *tensors], [tf.string, *dtypes]
            )
            failure.set_shape([])
            fine = tf.raw_ops.Assert(condition=tf.equal(failure, ""), data=[failure], summarize=1)
            with tf.control_dependencies([fine]):
                results = [tf.identity(result) for result in results]
                tf.raw_ops.AssignVariableOp(resource=self._order.handle, value=tf.constant(0))
        return results


@contextlib.contextmanager
def as_tensorflow_fails() -> Iterator[None]:
    """While it lasts a peer's end is the error that TensorFlow's own collectives have for it.

    Raises:
      tf.errors.UnavailableError: instead of `PeerGone`.
    """
    try:
        yield
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None


def joined_along(axes: Sequence[int], found: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The parts of each array, one after the other along its axis."""
    return [np.concatenate(parts, axis=a) for parts, a in zip(found, axes, strict=True)]


def _said(text: str) -> np.ndarray:
    return np.array(text.encode(), object)


def _bytes_of(tensor: tf.Tensor) -> int | None:
    count = tensor.shape.num_elements()
    return None if count is None else count * tensor.dtype.size
