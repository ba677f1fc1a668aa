"""Several replicas on one worker: each runs the same traced step, and they take turns.

One computes at a time, in the order of their numbers, so that a worker needs the memory of one.
Where the step hands something in to be summed, a replica waits until all of the worker's have: the
last one sums for them all with the other workers, and updates the weights. How many replicas a
worker has is no part of the graph: it is called so many times, each time in a thread of its own.
To wait is to take from an empty queue, which costs none of TensorFlow's threads.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfrun.engine import own_copies, script_state
from tfrun.engine.meeting import Meeting
from tfrun.engine.overlap import OneThread
from tfrun.engine.own_copies import OwnCopies
from tfrun.engine.random_in_turn import RandomInTurn

_numbers = itertools.count()


class Turns:
    """The replicas that a worker holds.

    Attributes:
      held: their numbers among all of the job, ascending.
      one_each: whether each worker of the job holds one.
      changes: whether this worker may come to hold another number of them.
      seconds: what the newest step took, but for the wait for other workers; None of one that was
        the first of its function.
      waited: seconds of it, for other workers.
      balance: moves replicas between workers; None where they stay.
      when_traced: is called when a function has been traced that is about to run the first time.

    Args:
      held: see above.
      total: of the job.
      workers: of the job.
      most: how many this worker may come to hold; 0 for those that it holds.
    """

    def __init__(self, held: Sequence[int], total: int, workers: int, most: int = 0) -> None:
        self.held, self.total, self.one_each = list(held), total, workers == total
        self.changes = most > len(held)
        self.seconds: float | None = None
        self.waited = 0.0
        self.balance: Any = None
        self.when_traced: Callable[[], None] = lambda: None
        places_of = range(max(most, len(held)))
        self.copies = OwnCopies(len(places_of))
        self._lock = threading.RLock()
        with tf.init_scope(), tf.device("CPU:0"):
            # Past the strategy, as TensorFlow's own ordering tokens.
            make = resource_variable_ops.ResourceVariable
            numbers = [make(place, dtype=tf.int32, trainable=False) for place in places_of]
            places = [make(place, dtype=tf.int32, trainable=False) for place in places_of]
        self._numbers, self._places = numbers, places
        self._number, self._place = numbers[0], places[0]
        self._queues = [_queue() for _ in places_of]
        self._first_queue = self._queues[0]  # which functions have been traced with
        for each in (numbers, places):
            self.copies.add([variable.handle for variable in each])
        self.copies.add(self._queues)
        self._threads = [OneThread(f"tfrun-replica-{place}") for place in places_of]
        self._meeting: Meeting | None = None
        self._random: RandomInTurn | None = None  # of a step that calls the script's Python
        self._alone = Meeting(1, self._start, self._wake)  # of the only replica here
        # What that one's newest step was traced with, and what it was given.
        self._newest: tuple[Any, Callable[[], Any], Any] = (None, lambda: None, None)
        self._begun: list[threading.Event] = []
        self._failure: BaseException | None = None
        self._returned: list[Any] = []  # by each replica, in the newest step
        self.hold(held)

    def hold(self, held: Sequence[int], workers: int | None = None) -> None:
        """Between two steps: from now on it holds these, neighbours, ascending.

        Args:
          held: their numbers.
          workers: of the job, where there is another number of them now.
        """
        self.held = list(held)
        self.copies.tell_apart(len(held) > 1)
        if workers is not None:
            self.one_each = workers == self.total
        for variable, number in zip(self._numbers, held, strict=False):
            variable.assign(number, read_value=False)

    def number(self) -> tf.Tensor:
        """The replica's number among all, int32 scalar; where a step is traced."""
        return _read(self._number)

    def place(self) -> tf.Tensor:
        """The replica's position among those of this worker, int32 scalar."""
        return _read(self._place)

    def wait(self) -> tf.Operation:
        """Where a step is traced: waits until all have handed in, and this replica has the turn."""
        with tf.device("CPU:0"):
            (woken,) = tf.raw_ops.QueueDequeueV2(
                handle=self._first_queue, component_types=[tf.bool]
            )
            return tf.raw_ops.Assert(
                condition=woken, data=["another replica of this worker has failed"], summarize=1
            )

    def hands_in(self, place: int, where: str, add: Callable[[bool], None]) -> bool:
        """Called where a step hands in; see `Meeting.hands_in`.

        Args:
          place: the replica's position.
          where: names the sum.
          add: takes what is handed in; is told whether it is the first of it.
        """
        with self._lock:
            assert self._meeting is not None, "no step of the replicas runs"
            add(self._meeting.nobody_waits)
            return self._meeting.hands_in(place, where)

    @property
    def are_taken(self) -> bool:
        """Whether a step of the replicas runs, and no other function."""
        return self._meeting is not None

    def apart(self, variable: Any) -> list[Any]:
        """A metric's variables, one for each replica here."""
        return self.copies.apart(variable)[: len(self.held)]

    def returned_with(self, first: Any) -> list[Any]:
        """What each replica here has returned in the newest step, if the first has `first`."""
        return self._returned if self._returned and self._returned[0] is first else []

    def run(self, function: Any, given: Sequence[Any], spec: Any = None) -> Any:
        """Has each replica run a traced step; returns what the first one's returns.

        Args:
          function: a `tf.function` of one argument.
          given: what it is called with, for each replica: its batch, or an iterator of all.
          spec: what it is traced with; None for what it is called with.
        """
        if len(self.held) == 1:
            known, iterator, traced = self._newest
            # To look up what an iterator has been traced with takes as long as a small step.
            if known is function and iterator() is given[0]:
                return self._run_alone(traced, given[0], is_new=False)
        traced, is_new = self._traced(function, given, spec)
        if len(self.held) == 1:
            if isinstance(given[0], tf.data.Iterator | tf.distribute.DistributedIterator):
                self._newest = function, weakref.ref(given[0]), traced[0]
            return self._run_alone(traced[0], given[0], is_new=is_new)
        began, self.waited = time.perf_counter(), 0.0
        try:
            return self._run(traced, given)
        finally:
            self.seconds = None if is_new else time.perf_counter() - began - self.waited

    def _traced(self, function: Any, given: Sequence[Any], spec: Any) -> tuple[list[Any], bool]:
        """The concrete function for each that is given, and whether one has not run before."""
        found: dict[int, Any] = {}
        is_new = False
        for one in given:
            if id(one) not in found:
                found[id(one)] = function.get_concrete_function(one if spec is None else spec)
                is_new = self.copies.prepare(found[id(one)]) or is_new
        if is_new:
            self.when_traced()
        return [found[id(one)] for one in given], is_new

    def _run_alone(self, traced: Any, one: Any, *, is_new: bool) -> Any:
        began, self.waited, self._meeting = time.perf_counter(), 0.0, self._alone
        try:
            result = traced(one)
        finally:
            self._meeting = None
            self.seconds = None if is_new else time.perf_counter() - began - self.waited
        self._returned = [result]
        return result

    def _run(self, traced: Sequence[Any], given: Sequence[Any]) -> Any:
        self.copies.begin_step()
        self._begun = [threading.Event() for _ in self.held]
        self._random = RandomInTurn(len(self.held)) if script_state.calls_python else None
        self._meeting, self._failure = Meeting(len(self.held), self._start, self._wake), None
        calls = [
            thread.submit(functools.partial(self._call, place, functools.partial(step, one)))
            for place, (thread, step, one) in enumerate(
                zip(self._threads, traced, given, strict=False)
            )
        ]
        self._meeting.start()
        wait(calls)
        self._meeting = None
        if self._random is not None:
            self._random.all_are_done()
        if self._failure is not None:
            # Some of them have something left in them.
            self._queues[:] = [_queue() for _ in self._queues]
            raise self._failure
        self._returned = [call.result() for call in calls]  # raises what ends the data
        return self._returned[0]

    def _call(self, place: int, step: Callable[[], Any]) -> Any:
        own_copies.calls_as(place)
        self._begun[place].wait()
        if self._failure is not None:
            return None
        over = None
        try:
            try:
                result = step()
            except tf.errors.OutOfRangeError as error:  # so it is for the others
                result, over = None, error
            with self._lock:
                if self._meeting is not None:
                    self._meeting.ends(place)
        except BaseException as error:
            self._fail(error)
            return None
        if over is not None:
            raise over
        return result

    def _start(self, place: int) -> None:
        self._takes_turn(place)
        self._begun[place].set()

    def _wake(self, place: int) -> None:
        self._takes_turn(place)
        _put(self._queues[place], True)

    def _takes_turn(self, place: int) -> None:
        if self._random is not None:
            self._random.takes_turn(place)

    def _fail(self, error: BaseException) -> None:
        """Has all others end, wherever they are."""
        with self._lock:
            if self._failure is None:
                self._failure = error
                for queue, begun in zip(self._queues, self._begun, strict=False):
                    begun.set()
                    _put(queue, False)


def _queue() -> tf.Tensor:
    name = f"tfrun-turn-{next(_numbers)}"  # without one they all are the same
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.raw_ops.FIFOQueueV2(
            component_types=[tf.bool], shapes=[()], capacity=2, shared_name=name
        )


def _put(queue: tf.Tensor, goes_on: bool) -> None:
    with tf.device("CPU:0"):
        tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(goes_on)])


def _read(variable: Any) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
