"""The plan of one `fit`: where it goes on in its data, and how many steps it makes at once.

It is made where the call begins and read where its data is. In between Keras makes the iterator
over the data and hands it nothing but what the script has passed, so the plan of the call that
runs stands in a context variable, which only this file touches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import tensorflow as tf

from tfrun.data.drawn_orders import DrawnOrders
from tfrun.data.global_random import Drawn
from tfrun.data.keras import plain_pipelines
from tfrun.data.order import repeatable
from tfrun.data.order.other_batches import NOTHING_KNOWN, Reads
from tfrun.job.errors import TfrunError

Execution = tuple[int, int, Any]  # first step, last step, iterator


class Pace(Protocol):
    """Says how many steps the executions of a `fit` have."""

    @property
    def steps(self) -> int:
        """Steps of the execution that runs, or comes next."""
        ...

    def stands_at(self, step: int) -> None:
        """So many steps of the training are done."""
        ...

    def most(self) -> int:
        """How many the next one may have; asked before each, on all workers alike."""
        ...

    def begins(self, steps: int) -> None:
        """The next one has so many, at most what `most` has said."""
        ...


@dataclass
class Passes:
    """Counts how often an iterator over some data has been made.

    A `tf.data` pipeline that shuffles draws its next order when somebody begins to read it, a
    generator goes on where it was left. So the place in such data is a number of passes and a
    number of batches, and after a failure both have to be what they were.

    Attributes:
      data: what is read; None until somebody reads.
      begun: so often by us.
    """

    data: Any = None
    begun: int = 0

    @property
    def stand(self) -> list[int]:
        """How often the data has been begun by us, and by whoever else draws from its shuffles."""
        return [self.begun, plain_pipelines.drawn(self.data)]

    def check(self, expected: list[int] | None, what: str) -> None:
        """Refuses to go on in another pass over the data than the earlier run of the script.

        Args:
          expected: the stand when the state was kept; None if nobody knows.
          what: "the training data" or the like.

        Raises:
          TfrunError: TFRUN-615.
        """
        data = self.data
        if expected in (None, self.stand):
            return
        is_plain = isinstance(data, tf.data.Dataset) and not repeatable.why_not(data)
        if is_plain and not repeatable.draws(data):  # each pass gives the same
            return
        now, then = sum(self.stand), sum(expected or ())
        raise TfrunError(
            "TFRUN-615",
            f"the script has started to read {what} {now} times, but {then} times when the state "
            "was kept, so training would go on with other samples",
            expected="the script to read its data in the same way whenever it is run",
            fix="Find what else reads the dataset, such as a callback that looks at a batch, and "
            "give it a dataset of its own; or use a tfrun.Dataset, which always continues at the "
            "right sample",
        )


def _nothing(epoch: int) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Resume:
    """What is done already.

    Attributes:
      epochs: whole epochs of this `fit`.
      steps: steps of the epoch that follows.
      skip: samples of the batch after them.
      trained: those are all of its steps.
      stopped: the epoch was left after those steps, before its data had ended.
      pipeline: what the workers of parameter servers have trained of a `tf.data` pipeline.
      whole: nothing is left to do: `fit` passes `epochs` epochs of data and trains none.
      begun: how often the data had been begun before the epoch that follows, see `Passes.stand`;
        None if unknown.
      passing: a context in which what is done is passed by: data may draw random numbers.
      after_epoch: called with the number of each whole epoch, from 0, once its data is passed.
    """

    epochs: int = 0
    steps: int = 0
    skip: int = 0
    trained: bool = False
    stopped: bool = False
    whole: bool = False
    pipeline: tuple[Any, ...] = ()
    begun: list[int] | None = None
    passing: Callable[[], AbstractContextManager] = nullcontext
    after_epoch: Callable[[int], None] = _nothing


@dataclass(kw_only=True, eq=False)
class FitPlan:
    """What a `fit` is to do with its data, and what it tells of it.

    Attributes:
      reads: how the data is read, as far as that shows before it is.
      epochs: how many this `fit` has at most, those that are done included; None if nobody knows.
      resume: what is done; None to begin at the beginning.
      pace: how many steps an execution of the train function has; None for Keras's own number.
      passes: how often the data has been begun so far.
      make_iterator: makes the epoch iterator of a model that has one of its own kind, of the
        strategy and the options that Keras passes to its own; None for other models than that.
      iterator: the epoch iterator of the training data, once Keras has made it.
      drawn: what its batches have drawn from the global random generators.
      orders: what it and its validation data draw between batches.
      ran_out: the newest step has got no batch, or has not come to its end yet.
      sketches: of the arrays that it is given, see data/keras/alike.py; None for nothing known.
      exact: the `tfrun.Dataset` that its arrays have been made, which is the same one where the
        call goes on in another round.
      begins: the place in its `tfrun.Dataset` before the call, and whether somebody had set it.
      agreed: what the workers have agreed on before the call; None: they have not yet.
      reads_on: the epoch iterator of its training data that goes on, where the call does so in
        another round, in its process; None to make one.
      validation: that of its validation data, once it has been begun, if it has a memory.
      data_ended: called when an epoch's data has been told that it has ended, if it wants to know.
    """

    reads: Reads = NOTHING_KNOWN
    epochs: int | None = None
    resume: Resume | None = None
    pace: Pace | None = None
    passes: Passes = field(default_factory=Passes)
    make_iterator: Callable[[Any, dict[str, Any]], Any] | None = None
    iterator: Any = None
    drawn: Drawn = field(default_factory=Drawn)
    orders: DrawnOrders = field(default_factory=DrawnOrders)
    ran_out: bool = False
    sketches: tuple[Any, Any] | None = None
    exact: Any = None
    begins: tuple[Any, bool] | None = None
    agreed: list[bool] | None = None
    reads_on: Any = None
    validation: Any = None
    data_ended: Callable[[], None] = lambda: None

    def again(self, plan: FitPlan) -> None:
        """Makes `plan` one by which the same call goes on in another round, in this process."""
        plan.exact, plan.begins, plan.validation = self.exact, self.begins, self.validation
        plan.orders = self.orders
        iterator = self.iterator or self.reads_on
        if iterator is not None and not iterator.is_exact:
            plan.reads_on, plan.passes, plan.drawn = iterator, self.passes, self.drawn

    @contextlib.contextmanager
    def runs(self) -> Iterator[None]:
        """While it lasts, the iterators that Keras makes are those of this call."""
        token = _of_call.set(self)
        try:
            yield
        finally:
            _of_call.reset(token)


_of_call: ContextVar[FitPlan | None] = ContextVar("the plan of the call that runs", default=None)


def of_call() -> FitPlan:
    """The plan of the call that runs; one that plans nothing where no call of ours does."""
    return _of_call.get() or FitPlan()


def of_training(iterator: Any) -> FitPlan:
    """The plan of the `fit` that runs, which reads its training data by this iterator.

    A trainer of the script's own that goes around `fit` has none.
    """
    plan = of_call()
    if plan.iterator is not None:
        plan = FitPlan()
    plan.iterator = iterator
    return plan


def together(steps: Iterable[Execution], total: int, pace: Pace) -> Iterator[Execution]:
    """Yields executions made of single steps, none of which goes over the end of the epoch.

    Args:
      steps: of one epoch, each with the same number first and last.
      total: how many the epoch has. Nothing is asked of `steps` behind the last one before that
        has been made: an epoch's end is not without consequence.
      pace: how many go together.
    """
    single = iter(steps)
    for begin, end, iterator in single:
        for _ in range(min(pace.most(), total - begin) - 1):
            more = next(single, None)
            if more is None:  # the data has ended before the epoch
                break
            end = more[1]
        pace.begins(end + 1 - begin)
        yield begin, end, iterator
