"""The host collective of workers that hold several replicas, as operations of a graph.

The graph is one replica's. It hands in what is to be summed; the last of a worker's replicas to
come sums for them all with the other workers, and does the updates. The others wait, and are given
what they need of the sums. Outside of such a step (in `predict`, between steps) a worker counts as
one, as everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.collective import collective
from tfrun.collective.errors import Disagreement, PeerAbsent, PeerGone
from tfrun.collective.summation_order import Adder
from tfrun.engine import loop_refusals, replica
from tfrun.engine.gradient_order import Stages
from tfrun.engine.hand_in_places import Place, Places
from tfrun.engine.handed_in import Early, Parts, kinds_of
from tfrun.engine.host_collective_ops import Calls, Sum, as_tensorflow_fails, nothing
from tfrun.engine.own_copies import HANDS_IN, UPDATE
from tfrun.engine.turns import Turns
from tfrun.job.world import one_for_good

Then = Callable[[list[tf.Tensor]], None]


class CallsInTurn(Calls):
    """Collectives of replicas that take turns.

    Args:
      members: the workers.
      turns: the replicas of this one.
      overlaps: see `Calls`; with several replicas, while the last one computes.

    Attributes:
      waited: seconds that all steps so far have waited for other workers.
    """

    def __init__(
        self, members: collective.Collective, turns: Turns, *, overlaps: bool = False
    ) -> None:
        super().__init__(members, overlaps=overlaps)
        self.turns, self.waited = turns, 0.0
        self._names = itertools.count()
        self._places: Places | None = None  # of a function of which there are several traces
        self._found: list[np.ndarray] = []  # what the other replicas need of the newest
        self._takers = 0  # of these so many have not taken it yet

    @contextlib.contextmanager
    def tracing(self, places: Places) -> Iterator[None]:
        """While it lasts a function is traced, of which there are several traces.

        Args:
          places: of all of them: replicas of one step may take different ones.
        """
        before, self._places = self._places, places
        places.begin()
        try:
            yield
        finally:
            self._places = before

    def _place(self, what: str, tensors: Sequence[tf.Tensor]) -> Place:
        """Where these are handed in."""
        if self._places is None:
            return Place(f"sum {next(self._names)} of the step")
        kinds = ", ".join(f"{tensor.dtype.name} {tensor.shape}" for tensor in tensors)
        return self._places.next(f"{what} {zlib.crc32(kinds.encode()):08x}")

    def all_reduce(self, wanted: Sum, before: Callable[[], None] = nothing) -> list[tf.Tensor]:
        if tf.executing_eagerly() or one_for_good():
            return super().all_reduce(wanted, before)
        return self.update(wanted, range(len(wanted.tensors)), None, before)

    def update(
        self,
        wanted: Sum,
        for_all: Sequence[int],
        then: Then | None,
        before: Callable[[], None] = nothing,
        rows: Sequence[tf.Tensor] = (),
    ) -> list[tf.Tensor]:
        """Sums tensors over all replicas, and has one replica of each worker do something then.

        Args:
          wanted: the sum.
          for_all: the positions of those sums that every replica needs.
          then: is traced with all sums, and with the rows of all behind them, into a branch that
            the last replica of a worker takes.
          before: see `Calls.all_reduce`.
          rows: of what the rows of all replicas are wanted, one after the other. They come last:
            those of an embedding are there when the backward pass ends.

        Returns:
          The sums of `for_all`.
        """
        packs = self._packs(wanted.tensors)
        if len(packs) > 1:
            return self._update_in_packs(wanted, packs, for_all, then, before, rows)
        before()
        self.note_sum(wanted.tensors)
        where = self._place("sum", wanted.tensors)
        adder = where.get("adder", lambda: Adder(self.turns.total))
        came, inputs = where.get("rows", lambda: Parts([0] * len(rows))), wanted.inputs
        gradients = [None]

        def add(number: int, arrays: Sequence[np.ndarray], is_first: bool) -> None:
            if is_first:
                adder.begin_anew()
            values, gradients[0] = wanted.read(arrays[: len(inputs)])  # type: ignore[assignment]
            adder.add(number, values)
            came.add(number, arrays[len(inputs) :], is_first)

        def together() -> list[np.ndarray]:
            self._check_all(adder)
            found = self.group.all_reduce_parts(adder.sums(), gradients[0], adder.dtypes)
            found += came.of_all(self.group)
            adder.begin_anew()  # not before: where a peer has gone others hand in as well
            return found

        def apart(arrays: list[np.ndarray]) -> list[np.ndarray]:
            sums = wanted.on(self.group, arrays[: len(inputs)])
            return sums + came.of_workers(self.group, arrays[len(inputs) :])

        return self._meet(
            [*inputs, *rows],
            *kinds_of(wanted, rows),
            add=add,
            together=together,
            apart=apart,
            for_all=for_all,
            then=then,
            where=where,
        )

    def _update_in_packs(
        self,
        wanted: Sum,
        packs: Sequence[Sequence[int]],
        for_all: Sequence[int],
        then: Then | None,
        before: Callable[[], None],
        rows: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """As `update`; each pack is handed in, and summed, as soon as it is there."""
        order = [i for pack in packs for i in pack]
        places = sorted(range(len(order)), key=order.__getitem__)
        where = self._place("sum", wanted.tensors)
        early = [
            Early(wanted.part(pack, str(k)), where.get(f"{k}", lambda: Adder(self.turns.total)))
            for k, pack in enumerate(packs)
        ]
        stages = Stages([one.wanted.tensors for one in early])
        begun = [self._hand_in_early(one, k) for k, one in enumerate(early)]
        stages.follow(begun)
        before()
        came = where.get("rows", lambda: Parts([0] * len(rows)))

        def together() -> list[np.ndarray]:
            if not self._begun:  # they have failed, in an earlier round
                for one in early:
                    self._submit(one.sums(self.group))
            wait(self._begun)  # before anything of them is handed in again
            found = self._finish([])
            theirs = came.of_all(self.group)
            for one in early:
                one.adder.begin_anew()
            return [*(found[place] for place in places), *theirs]

        def apart(arrays: list[np.ndarray]) -> list[np.ndarray]:
            found = self._finish(arrays)
            theirs = came.of_workers(self.group, arrays[len(begun) :])
            return [*(found[place] for place in places), *theirs]

        return self._meet(
            [*begun, *rows],
            *kinds_of(wanted, rows),
            add=lambda number, arrays, first: came.add(number, arrays[len(begun) :], first),
            together=together,
            apart=apart,
            for_all=for_all,
            then=then,
            where=where,
        )

    def _hand_in_early(self, one: Early, number: int) -> tf.Tensor:
        def hand_in(place: np.ndarray, *arrays: np.ndarray) -> None:
            if not self.turns.are_taken:
                self._submit(functools.partial(one.wanted.on, self.group, arrays))
                return
            is_first, is_last = self.turns.comes_as(int(place))
            if is_first:
                one.adder.begin_anew()
            one.add(self.turns.held[int(place)], arrays)
            if is_last:
                self._check_all(one.adder)
                self._submit(one.sums(self.group))

        return self._when_there(hand_in, [self.turns.place(), *one.wanted.inputs], number)

    def all_gather(self, tensors: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
        if tf.executing_eagerly() or one_for_good():
            return super().all_gather(tensors, axes)
        where = self._place("parts", [tensor[:0] for tensor in tensors])
        came = where.get("came", lambda: Parts(axes))
        shapes = [
            tf.TensorShape([None if i == axis else n for i, n in enumerate(tensor.shape)])
            for tensor, axis in zip(tensors, axes, strict=True)
        ]
        return self._meet(
            tensors,
            [tensor.dtype for tensor in tensors],
            shapes,
            add=came.add,
            together=lambda: came.of_all(self.group),
            apart=lambda arrays: came.of_workers(self.group, arrays),
            for_all=range(len(tensors)),
            then=None,
            where=where,
        )

    def _check_all(self, adder: Adder) -> None:
        """Refuses to sum without what a replica of this worker has handed in elsewhere.

        Raises:
          Disagreement: it has.
        """
        if adder.count != len(self.turns.held):
            raise Disagreement(
                f"replicas of one worker differ: {adder.count} of {len(self.turns.held)} hand in "
                "the same tensors"
            )

    def sum_of_copies(self, variable: Any) -> tf.Tensor:
        """What all replicas of all workers have of a variable, added up; between two steps."""
        return self._sum_of([copy.numpy() for copy in self.turns.apart(variable)])

    def sum_of_replicas(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum of what all replicas of all workers have; between two calls of a step."""
        return self._sum_of([value.numpy() for value in values])

    def mean_of_replicas(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """The mean of what all replicas of all workers have; between two steps."""
        return self._sum_of([value.numpy() for value in values]) / self.turns.total

    def _sum_of(self, arrays: Sequence[np.ndarray]) -> tf.Tensor:
        if self.joins is not None:  # it stands apart, with some of the replicas: nobody adds theirs
            return tf.constant(sum(arrays[1:], start=arrays[0]))
        adder = Adder(self.turns.total)
        for number, array in zip(self.turns.held, arrays, strict=True):
            adder.add(number, [array])
        with as_tensorflow_fails():
            (total,) = self.group.all_reduce_parts(adder.take(), dtypes=adder.dtypes)
        return tf.constant(total)

    def _meet(
        self,
        inputs: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType],
        shapes: Sequence[tf.TensorShape],
        *,
        add: Callable[[int, Sequence[np.ndarray], bool], None],
        together: Callable[[], list[np.ndarray]],
        apart: Callable[[list[np.ndarray]], list[np.ndarray]],
        for_all: Sequence[int],
        then: Then | None,
        where: Place,
    ) -> list[tf.Tensor]:

        def results(place: int, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray] | None:
            if not self.turns.are_taken:
                if then is not None and not self.turns.one_each:
                    loop_refusals.note_update_alone()
                    raise Disagreement("one replica of this worker alone updates")
                return apart(list(arrays))
            handed = functools.partial(add, self.turns.held[place], arrays)
            if not self.turns.hands_in(place, where.name, handed):
                return None
            began = time.perf_counter()
            while True:
                try:
                    found = together()
                    break
                except (PeerGone, PeerAbsent):
                    # Before anything of the step was summed, the others of the next round can make
                    # what the one who has gone was to hand in.
                    if then is None or self.turns.has_summed or not self.turns.goes_on():
                        raise
                if self.turns.others_hand_in():
                    return None
            self.turns.has_summed = True
            if then is not None:
                self.turns.updates_as(place)
            seconds = time.perf_counter() - began
            self.turns.waited += seconds
            self.waited += seconds
            self._takers = len(self.turns.held) - 1
            self._found = [found[i] for i in for_all] if self._takers else []
            return found

        def take() -> list[np.ndarray]:
            taken = self._found
            self._takers -= 1
            if not self._takers:  # they are parts of the memory of all sums
                self._found = []
            return taken

        def hand_in(_, place: np.ndarray, *arrays: np.ndarray) -> list[Any]:
            failure, found = "", None
            try:
                found = results(int(place), arrays)
            except (PeerGone, PeerAbsent, Disagreement) as error:
                failure = f"{type(error).__name__}: {error}"
            nothing = [np.zeros((), dtype.as_numpy_dtype) for dtype in dtypes]
            return [_said(failure), np.bool_(found is not None), *(found or nothing)]

        with tf.device("CPU:0"):
            before = tf.raw_ops.ReadVariableOp(resource=self._order.handle, dtype=tf.int32)
            failure, is_last, *found = tf.numpy_function(
                hand_in,
                [before, self.turns.place(), *inputs],
                [tf.string, tf.bool, *dtypes],
                name=HANDS_IN,
            )
            failure.set_shape([])
            fine = tf.raw_ops.Assert(condition=tf.equal(failure, ""), data=[failure], summarize=1)
            with tf.control_dependencies([fine]):
                is_last = tf.ensure_shape(is_last, [])
        for tensor, shape in zip(found, shapes, strict=True):
            tensor.set_shape(shape)

        def of_last() -> list[tf.Tensor]:
            with tf.control_dependencies(found):  # nothing changes before all is there
                if then is not None:
                    then(found)
                return [tf.constant(True), *(tf.identity(found[i]) for i in for_all)]

        def of_others() -> list[tf.Tensor]:
            with tf.device("CPU:0"), tf.control_dependencies([self.turns.wait()]):
                if not for_all:
                    return [tf.constant(True)]
                given = tf.numpy_function(take, [], [dtypes[i] for i in for_all])
            for tensor, i in zip(given, for_all, strict=True):
                tensor.set_shape(shapes[i])
            return [tf.constant(True), *given]

        run = replica.current()
        counts = len(run.counts) if run else 0
        done, *results_for_all = tf.cond(is_last, of_last, of_others, name=UPDATE if then else None)
        with tf.control_dependencies([done]), tf.device("CPU:0"):
            tf.raw_ops.AssignVariableOp(resource=self._order.handle, value=tf.constant(0))
        if run is not None and then is not None:
            run.counts[counts:] = [done.op]  # in the branch nobody can wait for it
        return results_for_all


def _said(text: str) -> np.ndarray:
    return np.array(text.encode(), object)
