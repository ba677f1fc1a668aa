"""Reads a pipeline, or batches that Python makes, epoch by epoch, and goes on in the middle.

Such data is read in sequence: a shuffle draws its next order when it is begun, a generator goes on
where it was left. The script that runs again makes it anew, and what is done is passed by. A
worker that stays in its process has read it, a bit further than the others in their state: so the
pieces of the newest execution are kept, and given again where it has to be done again; of a
validation, which is done again from its beginning, all that it has read.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.data import drawn_orders
from tfrun.data.global_random import Drawn
from tfrun.data.keras import division
from tfrun.data.keras.fit_plan import FitPlan, Passes, Resume
from tfrun.data.keras.python_feed import PythonEpochIterator
from tfrun.data.order import repeatable
from tfrun.job.settings import settings

Execution = tuple[int, int, Iterator[Any]]  # its first and last step, and their batches

KEPT_BYTES = 256 << 20  # of the validation that runs, on each worker


class EpochsInSequence(PythonEpochIterator):
    """Keras's own epoch iterator, which goes on where a training was cut off.

    Attributes:
      passes: how often the data has been begun.
      epoch: of validation data, whose validation has begun last; None before the first.
    """

    # Set before Keras's own `__init__`, which is given what is to be read.
    passes: Passes
    _given: Any  # what the script has passed
    _per_step: int  # elements that make up a step
    _reads_all: bool  # the pieces of all replicas
    _training: bool
    _plan: FitPlan

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.epoch: int | None = None
        self._armed: Resume | None = None
        self._has_given = False  # a step has had a batch of it, in this run or an earlier one
        self._first_is_read, self._all_are_read = None, False
        self._at = -1  # the number of the epoch that was begun last
        self._open: Iterator[Execution] = iter(())  # what Keras has of it, and was not asked for
        self._asked: list[Execution] = []  # what it was, as far as that may be given again
        self._pieces: division.AllPieces | None = None  # of it
        self._is_complete = True
        # What the data's hooks have left of generators; None: its end has not come yet.
        self._of_reset: list[Any] = []
        self._of_end: list[Any] | None = None
        self._keeps = self._is_too_much = self._again = self._is_rehearsed = False
        super().__init__(*args, **kwargs)

    # --- an epoch ----------------------------------------------------------------------------

    def _in_sequence(self) -> Iterator[Execution]:
        """The executions of the epoch that Keras begins, or goes on with."""
        done, self._armed = self._armed, None
        if done is not None:
            left = self._from(done)
        elif self._again:
            left, self._again = list(self._asked), False
        else:
            self._begin()
            left = []
            if self._training and settings().rehearses:  # one execution; then it goes elsewhere
                self.drawn.stop(self.steps_per_execution)
                self._is_rehearsed = True
        yield from left
        for execution in self._open:  # which is not to be closed with this
            self._asked.append(execution)
            yield execution
        if self._of_end is None:
            self._of_end = self._drawn_by_hook()
        else:  # it has come before
            drawn_orders.give(self._of_end)

    def _drawn_by_hook(self) -> list[Any]:
        return self.orders.left if self.has_hooks else []

    def reset(self) -> None:
        if self._again:  # what has been begun is given again; and this has been done
            self._again = self._at >= 0
            drawn_orders.give(self._of_reset)
            return
        super().reset()
        self._of_reset = self._drawn_by_hook()
        self._at, self._open, self._is_complete = -1, iter(()), True
        self.forget()

    def _begin(self) -> None:
        self._at += 1
        self.forget()
        self._is_complete, self._of_end = False, None
        self._open = super()._enumerate_iterator()

    def _get_iterator(self):
        self.passes.begun += 1
        return super()._get_iterator()

    def _batches_of(self, begin: int, end: int, iterator: Iterator[Any]) -> Iterator[Any]:
        """What an execution is called with, of the data that Keras has for it."""
        self._forget(begin)
        if not self._reads_all:
            return iterator
        pieces = self._pieces_of(iterator)
        if self._keeps and pieces.bytes > KEPT_BYTES:
            self._is_too_much, pieces.keeps = True, False
        return pieces.execute(begin, end)

    def _forget(self, before: int) -> None:
        """Nobody goes back before this step, unless all of it is kept."""
        if self._pieces is None or not self._pieces.keeps:
            self._asked = [execution for execution in self._asked if execution[1] >= before]

    def _pieces_of(self, iterator: Iterator[Any]) -> division.AllPieces:
        if self._pieces is None:
            self._pieces = division.AllPieces(iterator, self._distributed_dataset.element_spec)
            self._pieces.keeps = self._keeps
        return self._pieces

    @contextlib.contextmanager
    def catch_stop_iteration(self):
        was_complete = self._is_complete
        with self._seeing_its_end():
            yield
        if self._training and not was_complete and self.has_hooks:
            self._plan.data_ended()

    @contextlib.contextmanager
    def _seeing_its_end(self) -> Iterator[None]:
        over: BaseException | None = None
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            over = error
        if self._is_complete:  # it has ended before, or was passed by
            self.drawn.ends(0)
            return
        with super().catch_stop_iteration():
            if over is not None:
                raise over
        self._is_complete = True

    # --- where it goes on --------------------------------------------------------------------

    def _from(self, done: Resume) -> list[Execution]:
        """Goes to where a training was; returns what is left of the execution that is in."""
        if self._at < 0 or self._is_rehearsed:  # else it has been there
            repeatable.warn_once(self._given)
        with contextlib.ExitStack() as until_it_goes_on, done.passing():
            if done.epochs > self._at or done.trained:
                self.drawn.stop(None)
            if done.epochs > self._at:
                self._pass_epochs(done)
                self._begin()
            assert done.epochs == self._at, (done.epochs, self._at)
            if done.trained:
                self._finish(done.steps if done.stopped else None)
                self._open = iter(())
                return []
            until_it_goes_on.enter_context(self.drawn.stops_at(done.steps))
            # Here too: the epoch's data draws its order with its first batch.
            is_there = self._read_to(done.steps)
        return self._left(done.steps) if is_there else []

    def _read_to(self, step: int) -> bool:
        """Reads the batches of the epoch's steps before; False where it has ended before."""
        while (self._asked[-1][1] if self._asked else -1) + 1 < step:
            found = next(self._open, None)
            if found is None:
                return False
            begin, end, iterator = found
            self._asked.append(found)
            self._read(begin, min(end + 1, step) - 1, iterator)
        return True

    def _left(self, step: int) -> list[Execution]:
        """What is left, from a step on, of the executions that Keras was asked for."""
        left = [(max(b, step), e, iterator) for b, e, iterator in self._asked if e >= step]
        if self._reads_all or not left:
            return left
        # The state is one of within an execution: the rest of it makes no steps but its own.
        ((_, end, iterator),) = left
        count = (end + 1 - step) * self._per_step
        batches = list(itertools.islice(_elements(iterator), count))
        return [(step, end, iter(batches))] if batches else []

    def _read(self, begin: int, end: int, iterator: Iterator[Any]) -> None:
        if self._reads_all:
            self._pieces_of(iterator).execute(begin, end).pass_by()
            return
        for _ in range((end + 1 - begin) * self._per_step):
            division.element(iterator)

    def _pass_epochs(self, done: Resume) -> None:
        """Goes past the whole epochs, and to the same pass over the data."""
        if 0 <= self._at < done.epochs:  # what this process has begun
            self._finish()
            done.after_epoch(self._at)
        for epoch in range(self._at + 1, done.epochs):
            last = done.whole and epoch + 1 == done.epochs
            self.pass_by(begun=done.begun[0] if last and done.begun else None)
            done.after_epoch(epoch)
        self.passes.check(done.begun, "the training data")

    def pass_by(self, *, begun: int | None = None) -> None:
        """Goes past an epoch that is done, as Keras goes through one.

        A `tf.data` pipeline that begins anew with each epoch draws the epoch's order when it
        does, and need not be read, unless what comes later depends on that. A generator, or what
        `fit` reads on over the ends of epochs, is read through.

        Args:
          begun: how often the data is to be begun, at most; None if nobody knows.
        """
        self._begin()
        self._finish(begun=begun)

    def _finish(self, steps: int | None = None, *, begun: int | None = None) -> None:
        """Goes past what is left of the epoch that was begun last.

        Args:
          steps: after how many steps it was left; None where its data had come to its end.
          begun: as of `pass_by`.
        """
        self._has_given = True
        if self._is_complete:
            return
        is_counted = self.data_adapter.num_batches is not None
        reads = self.steps_per_epoch is not None or not is_counted or self._is_read()
        reads = reads or Drawn.any
        with self._seeing_its_end():
            if reads and self._pieces is not None:
                self._pieces.pass_by()  # as far as this process was to read
            if steps is not None and self._asked and self._asked[-1][1] + 1 >= steps:
                return
            for begin, end, iterator in self._open:
                if reads:
                    self._read(begin, end, iterator)
                if steps is not None and end + 1 >= steps:
                    return
                if not reads and begun == self.passes.begun:  # left before its data had ended
                    return

    def _is_read(self) -> bool:
        """Whether the next pass over a pipeline has to be read, too, to be passed."""
        if self._first_is_read is None:
            self._first_is_read = repeatable.has_cache(self._given)
            self._all_are_read = repeatable.moves_while_read(self._given)
        first, self._first_is_read = self._first_is_read, False
        return first or self._all_are_read

    # --- validation in a process that stays --------------------------------------------------

    def validates_in(self, epoch: int) -> None:
        """The validation of an epoch begins."""
        self.epoch = epoch
        if self._reads_all and not self._again:
            self._keeps = not repeatable.gives_the_same(self._given)

    def again(self, *, wanted: bool) -> None:
        """The validation that has begun last is done again from its beginning, or is over."""
        self._again = wanted and self._keeps

    @property
    def is_given_again(self) -> bool:
        """Whether what comes next has been read: no first batch is to be looked at."""
        return self._again

    def forget(self) -> None:
        """The validation that has begun last is not done again."""
        self._asked, self._pieces, self._is_too_much = [], None, False

    @property
    def why_not_again(self) -> str:
        """Why what it has read cannot be given again in this process; "" if it can."""
        if not self._reads_all:
            return "its data is divided by worker"
        if self._is_too_much:
            return f"its validation reads more than {KEPT_BYTES >> 20} MiB of a worker's memory"
        return ""


def _elements(iterator: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            yield division.element(iterator)
        except StopIteration:
            return
