"""Several replicas on one worker: each runs the same traced step, and they take turns.

One computes at a time, in the order of their numbers, so that a worker needs the memory of one.
Where the step hands something in to be summed, a replica waits until all of the worker's have: the
last one sums for them all with the other workers, and updates the weights. How many replicas a
worker has is no part of the graph: it is called so many times, each time in a thread of its own.
To wait is to take from an empty queue, which costs none of TensorFlow's threads.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfrun.data import global_random
from tfrun.data.global_random import Drawn
from tfrun.engine import own_copies, script_state, turn_queues
from tfrun.engine.meeting import Meeting
from tfrun.engine.overlap import OneThread
from tfrun.engine.own_copies import OwnCopies
from tfrun.engine.random_in_turn import RandomInTurn

READS_ON = tf.data.Iterator | tf.distribute.DistributedIterator  # in the step
Gives = Callable[[], Sequence[Any] | None]


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
      has_summed: something of the step that runs has been summed with the other workers.
      returned: what each replica here has returned in the newest step, and `returned_by` whose.
      is_divided_anew: replicas were divided among the workers, and no step has been made since.
      go_on: may enter the next round in the midst of a step that reads an iterator; returns one of
        all batches of the step that this worker has there, None where the step does not go on.

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
        self.has_summed = False
        self.go_on: Callable[[], Any | None] = lambda: None
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
        self._queues = [turn_queues.make() for _ in places_of]
        for each in (numbers, places):
            self.copies.add([variable.handle for variable in each])
        self.copies.add(self._queues)
        self._threads = [OneThread(f"tfrun-replica-{place}") for place in places_of]
        self._meeting: Meeting | None = None
        self._random = RandomInTurn()
        self._drawn: global_random.State | None = None  # before such a step of one replica
        self._alone = Meeting(1, self._start, self._wake)  # of the only replica here
        # What that one's newest step was traced with, and what it was given.
        self._newest: tuple[Any, Callable[[], Any], Any] = (None, lambda: None, None)
        self._begun: list[threading.Event] = []
        self._failure: BaseException | None = None
        self.returned: list[Any] = []
        self.returned_by: list[int] = []
        self.is_divided_anew = True
        self._making: list[int] = []  # who makes the newest step
        self._function: Any = None  # that makes it
        self._reads: Any = None  # the iterator that it is called with
        self._gives: Gives | None = None  # as of `run`
        self._later: list[Future[Any]] = []  # replicas that this worker took on within the step
        self._left = 0  # batches of this step that the iterator still has, and that were computed
        self.hold(held)

    def hold(self, held: Sequence[int], workers: int | None = None) -> None:
        """From now on it holds these, neighbours, ascending.

        In the midst of a step those that make it stay where they are, and others come behind them;
        they are in their order again when the step is over.

        Args:
          held: their numbers.
          workers: of the job, where there is another number of them now.
        """
        self.is_divided_anew = True
        if workers is not None:
            self.one_each = workers == self.total
        making = self._making if self._meeting is not None else []
        self.held = [*making, *(number for number in held if number not in making)]
        if not set(making) <= set(held):
            self.held = list(held)  # the step that runs is of no use, and ends
            return
        self.copies.tell_apart(len(held) > 1)
        for variable, number in zip(self._numbers, self.held, strict=False):
            variable.assign(number, read_value=False)

    def number(self) -> tf.Tensor:
        """The replica's number among all, int32 scalar; where a step is traced."""
        return _read(self._number)

    def place(self) -> tf.Tensor:
        """The replica's position among those of this worker, int32 scalar."""
        return _read(self._place)

    def python_of(self, place: int) -> AbstractContextManager[None]:
        """While it lasts Python of the script's runs, which the step of this replica calls."""
        return self._random.python_of(place)

    def updates_as(self, place: int) -> None:
        """The replica at this position updates the weights, for all of the worker."""
        self._random.last = place

    def wait(self) -> tf.Operation:
        """Where a step is traced: waits until all have handed in, and this replica has the turn."""
        with tf.device("CPU:0"):
            (woken,) = tf.raw_ops.QueueDequeueV2(handle=self._queues[0], component_types=[tf.bool])
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

    def comes_as(self, place: int) -> tuple[bool, bool]:
        """Whether the replica at this position hands in as the first one, and as the last one."""
        with self._lock:
            assert self._meeting is not None, "no step of the replicas runs"
            return self._meeting.nobody_waits, self._meeting.is_last(place)

    def goes_on(self) -> bool:
        """Called where a step cannot sum, because a peer has gone, and has not summed anything yet.

        Returns:
          Whether this worker is in another round, where the step goes on.
        """
        if self._gives is None and not isinstance(self._reads, READS_ON):
            return False
        reads = (self._gives or self.go_on)()
        self._reads = self._reads if reads is None else reads
        return reads is not None

    def others_hand_in(self) -> bool:
        """Called where a step goes on in another round: has those begin that came to be held.

        Returns:
          Whether there are any: the step's replicas wait for them.
        """
        with self._lock:
            assert self._meeting is not None, "no step of the replicas runs"
            self._begun = self._begun or [threading.Event()]  # one alone needs none
            making, passed = len(self._begun), 0
            reads_on = self._gives is None
            given = [self._reads] if reads_on else self._reads
            traced, _ = self._traced(self._function, given, None)
            for order, number in enumerate(sorted(self.held)):
                place = self.held.index(number)
                if place < making:
                    passed += 1
                    continue
                self._begun.append(threading.Event())
                if reads_on:
                    step = functools.partial(_after, passed, traced[0], self._reads)
                else:
                    step = functools.partial(traced[order], given[order])
                call = functools.partial(self._call, place, step)
                self._later.append(self._threads[place].submit(call))
                passed = 0
            self._left = passed if reads_on else 0
            if len(self.held) == making:
                return False
            self._making = self.held
            self._meeting.all_wait()
            if making == 1 and self._drawn is not None and not Drawn.now.draws:
                self._random.begins(1, self._drawn)
            self._random.join(len(self.held) - making)
            self._meeting.join(len(self.held) - making)
            return True

    @property
    def are_taken(self) -> bool:
        """Whether a step of the replicas runs, and no other function."""
        return self._meeting is not None

    def apart(self, variable: Any) -> list[Any]:
        """A metric's variables, one for each replica here."""
        return self.copies.apart(variable)[: len(self.held)]

    def run(
        self, function: Any, given: Sequence[Any], spec: Any = None, gives: Gives | None = None
    ) -> Any:
        """Has each replica run a traced step; returns what the first one's returns.

        Args:
          function: a `tf.function` of one argument.
          given: what it is called with, for each replica: its batch, or an iterator of all.
          spec: what it is traced with; None for what it is called with.
          gives: as `go_on` of a step that is called with batches; returns each replica's.
        """
        self._function, self._reads, self._making = function, given[0], self.held
        self._gives = gives
        self.has_summed = False
        self._failure = None
        if len(self.held) == 1:
            known, iterator, traced = self._newest
            # To look up what an iterator has been traced with takes as long as a small step.
            if known is function and iterator() is given[0]:
                return self._run_alone(traced, given[0], is_new=False)
        traced, is_new = self._traced(function, given, spec)
        if len(self.held) == 1:
            if isinstance(given[0], READS_ON):
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
        self._begun = []
        if script_state.calls_python:
            self._drawn = global_random.take()
        try:
            result = traced(one)
            if self._later:
                with self._lock:
                    self._meeting.ends(0)
        except BaseException as error:
            result = self._fail(error)
        finally:
            self.seconds = None if is_new else time.perf_counter() - began - self.waited
            if not self._later:
                self._meeting = None
        self.returned = [result]
        if self._later or self._left or self._failure is not None:
            return self._all_returned([])
        self.returned_by, self.is_divided_anew = self.held, False
        return result

    def _run(self, traced: Sequence[Any], given: Sequence[Any]) -> Any:
        self.copies.begin_step()
        self._begun = [threading.Event() for _ in self.held]
        # What the thread that reads draws meanwhile would be taken back with what a step draws.
        draws = script_state.calls_python and not Drawn.now.draws
        if draws:
            self._random.begins(len(self.held))
        self._meeting, self._failure = Meeting(len(self.held), self._start, self._wake), None
        calls = [
            thread.submit(functools.partial(self._call, place, functools.partial(step, one)))
            for place, (thread, step, one) in enumerate(
                zip(self._threads, traced, given, strict=False)
            )
        ]
        self._meeting.start()
        wait(calls)
        self.returned = []
        return self._all_returned(calls)

    def _all_returned(self, calls: list[Future[Any]]) -> Any:
        """Ends a step of several replicas; returns what the first one's returns.

        Args:
          calls: of those that do not stand in `returned` already.
        """
        later, self._later = self._later, []  # nobody comes any more: all have gone on
        wait(later)
        self._meeting = None
        self._random.all_are_done()
        self._alone = Meeting(1, self._start, self._wake)
        order = sorted(range(len(self.held)), key=self.held.__getitem__)
        if later or self._failure is not None:
            self.hold(sorted(self.held))
        if self._failure is not None:
            for queue in self._queues:
                turn_queues.empty(queue)
            self._left = 0
            raise self._failure
        found = [*self.returned, *(call.result() for call in [*calls, *later])]
        if later:
            self.copies.rearrange(order)
        if self._left:
            left, self._left = self._left, 0
            _skip(left, self._reads)
        self.returned = [found[place] for place in order]
        self.returned_by, self.is_divided_anew = sorted(self.held), False
        return self.returned[0]

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
        self._begun[place].set()

    def _wake(self, place: int) -> None:
        turn_queues.put(self._queues[place], True)

    def _fail(self, error: BaseException) -> None:
        """Has all others end, wherever they are."""
        with self._lock:
            if self._failure is None:
                self._failure = error
                for queue, begun in zip(self._queues, self._begun, strict=False):
                    begun.set()
                    turn_queues.put(queue, False)


def _after(passed: int, step: Callable[[Any], Any], iterator: Any) -> Any:
    _skip(passed, iterator)
    return step(iterator)


def _skip(batches: int, iterator: Any) -> None:
    """Takes what others have computed already, or compute."""
    for _ in range(batches):
        next(iterator)


def _read(variable: Any) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
