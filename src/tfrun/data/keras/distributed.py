"""A `tfrun.Dataset` under a strategy: what Keras and custom loops iterate over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.keras import division
from tfrun.data.keras.fit_plan import Resume
from tfrun.data.ledger import writer as ledger
from tfrun.data.order.position import Position
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import FOREVER, Traced, as_endless, batches
from tfrun.job import holding
from tfrun.job.world import world


class DistributedView(tf.distribute.DistributedDataset):
    """The result of `strategy.experimental_distribute_dataset(dataset)`.

    Each `iter` is the next epoch of the dataset, or the rest of one from its position, and gives
    TensorFlow's own distributed iterator, which may be passed to a `tf.function`.

    Raises:
      UsageError: TFRUN-107, see `division.of_call`.
    """

    # Of a `Feed` alone: an iterator that a script holds reads on where replicas move.
    anew = False

    def __init__(self, dataset: Dataset, strategy: tf.distribute.Strategy) -> None:
        self.dataset, self.strategy, self._traced = dataset, strategy, Traced()
        self._among: division.Whom = division.of_call(strategy, "a distributed tfrun.Dataset")

    def __iter__(self) -> Iterator[Any]:
        ledger.not_covered(
            f"{self.dataset.name}, read from experimental_distribute_dataset(…)",
            "TensorFlow's iterator tells nobody which steps it gave; use TrainState.steps or fit",
        )
        place, _ = self.dataset.start()
        steps = self.dataset.steps_per_epoch
        made, _ = self._distributed(place.count(steps), (place.epoch + 1) * steps, skip=place.skip)
        self.dataset.advance(Position(epoch=place.epoch + 1))
        return iter(made)

    def __len__(self) -> int:
        return self.dataset.steps_per_epoch

    @property
    def cardinality(self) -> int:
        """Global batches in an epoch."""
        return self.dataset.steps_per_epoch

    @property
    def element_spec(self) -> Any:
        """The specification of an element, as of any distributed dataset."""
        return self._distributed(0, self.dataset.steps_per_epoch)[0].element_spec

    def _distributed(
        self, start: int, stop: int, wrap=lambda made: made, skip: int = 0
    ) -> tuple[Any, Replicas]:
        """Returns the strategy's view of the steps [start, stop), and this worker's replicas."""
        replicas: list[Replicas] = []

        def of_this_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = division.mine(self.strategy, context, self._among, anew=self.anew)
            replicas.append(here)
            return wrap(batches(self.dataset.plan, here, start, stop, skip, self._traced))

        made = self.strategy.distribute_datasets_from_function(of_this_worker)
        return made, replicas[0]


class Feed(DistributedView):
    """What one `fit`, `evaluate` or `predict` reads.

    Training goes on from the dataset's position, over the ends of epochs in one stream, and
    moves the position. Everything else reads the whole first epoch each time.

    Args:
      dataset: the data.
      strategy: that of the model.
      training: whether this is `fit`'s own data.
      epoch_steps: Keras's `steps_per_epoch`, None for all steps of the data.
      per_execution: Keras's `steps_per_execution`.
      batch_function: applied to each batch of a worker (Keras's class weights), or None.
      epochs: how many of them there are at most; None if nobody knows. What lies behind is not
        read: TensorFlow 2.21 has crashed when an iterator was dropped that was still reading.
      looks_first: what is read before `rewind` is only looked at and not trained.
    """

    anew = True

    def __init__(
        self,
        dataset: Dataset,
        strategy: tf.distribute.Strategy,
        *,
        training: bool,
        epoch_steps: int | None,
        per_execution: int,
        batch_function: Any = None,
        epochs: int | None = None,
        looks_first: bool = False,
    ) -> None:
        super().__init__(dataset, strategy)
        self.training = training
        self.epoch_steps = epoch_steps or dataset.steps_per_epoch
        self._per_execution, self._batch_function = per_execution, batch_function
        self._iterator: Any = None
        self._tape = ledger.Tape()
        self._moves = holding.moves  # of replicas, before the iterator was made
        self._round = world().round  # likewise
        self._next = -1  # the step that the iterator will give next
        self._count = 1  # steps of the execution that was given last
        self._stop = 0  # the step after the epoch's last one
        self._begin, self._sought, self._resumes = Position(), False, False
        self._pass_by = False  # the whole of the next epoch
        self._looks = looks_first
        self._how: ledger.How = "next"
        self._left: Position | None = dataset.position
        if training:
            whole_epochs = self.epoch_steps == dataset.steps_per_epoch
            self._begin, self._sought = dataset.start(whole_epochs=whole_epochs)
            self._resumes = self._sought
            self._how = "sought" if self._sought else "next"
        # In steps from the beginning of the data.
        begin = self._begin.count(dataset.steps_per_epoch)
        passed = begin % self.epoch_steps if self._resumes else 0  # of the first epoch
        self._end = FOREVER if epochs is None else begin - passed + epochs * self.epoch_steps

    def rewind(self) -> None:
        """Goes back to where this feed began: Keras has looked at a batch to build the model."""
        if self.training:
            self._iterator, self._resumes, self._looks = None, self._sought, False
            self.dataset.advance(self._begin)

    def get_ready(self) -> None:
        """Traces what `_at` needs, wherever that will be."""
        self._distributed(0, 1, self._wrapped)

    def passed(self) -> None:
        """Notes that this whole `fit` was done in an earlier round."""
        ledger.open_tape(self.dataset, self._begin, how="passed")

    def resume(self, done: Resume) -> None:
        """Begins later in the data than it would, because a part of this `fit` is done."""
        steps = self.dataset.steps_per_epoch
        count = self._begin.count(steps) + done.epochs * self.epoch_steps + done.steps
        self._begin = Position.of(count, steps, done.skip)
        self._sought = self._resumes = True
        # A peer may have died after the last step and before anybody knew that it was the last.
        self._pass_by = done.trained or done.steps >= self.epoch_steps
        self.dataset.advance(self._begin)
        self.goes_on()

    def goes_on(self) -> None:
        """Notes that all before the place where this feed begins is in the state of the job."""
        ledger.open_tape(self.dataset, self._begin, how="resumed")
        self._how, self._left, self._round = "next", self._begin, world().round

    def executions(self) -> Iterator[tuple[int, int, Any]]:
        """Yields (first step, last step, iterator) for each execution of one Keras epoch."""
        if self._pass_by:
            self._pass_by = self._sought = self._resumes = False
            return
        steps, size = self.dataset.steps_per_epoch, self._per_execution
        done = self.dataset.position.count(steps) if self.training else 0
        first = done % self.epoch_steps if self._resumes else 0
        self._resumes = False
        self._stop = done + self.epoch_steps - first
        self._at(done, self._stop)
        skip = self._skip_at(done)  # of this step alone
        for step in range(first, self.epoch_steps, size):
            if self._moves != holding.moves:
                self._at(done, self._stop)
            self._count = min(size, self.epoch_steps - step)
            self._next = done + self._count
            if self.training:
                self.dataset.advance(Position.of(self._next, steps))
                for number in range(done, self._next):
                    self._tape.taken(*divmod(number, steps), skip)
                    skip = 0
            yield step, step + size - 1, self._iterator
            done += self._count
        self._tape.settle()

    def repeat(self, steps: int) -> Any:
        """Returns an iterator that stands before the execution that is being made, in a new round.

        Args:
          steps: that it makes, where those are put together of single ones.
        """
        end = self._next
        done = end - (steps if self._per_execution == 1 else self._count)
        self._at(done, self._stop)
        self._next = end
        if self.training:
            for number in range(done, end):
                place = divmod(number, self.dataset.steps_per_epoch)
                self._tape.taken(*place, self._skip_at(number))
        return self._iterator

    def _skip_at(self, count: int) -> int:
        """What the batch after `count` steps lacks: the first one of all may lack something."""
        first = self._begin.count(self.dataset.steps_per_epoch) if self.training else -1
        return self._begin.skip if count == first else 0

    def _at(self, start: int, stop: int) -> None:
        """Has the iterator stand before the step `start`, and the tape be its pass's."""
        # An execution of several steps takes what there is: the data has to end with the epoch.
        endless = self.training and self.epoch_steps % self._per_execution == 0
        assert not endless or stop <= self._end, (start, stop, self._end)  # behind it are zeros
        moved, self._moves = self._moves != holding.moves, holding.moves
        if moved or self._iterator is None or not endless or self._next != start:
            end, skip = self._end if endless else stop, self._skip_at(start)
            made, replicas = self._distributed(start, end, self._wrapped, skip)
            self._iterator, self._next = iter(made), start
            place = Position.of(start, self.dataset.steps_per_epoch, skip)
            number = world().round
            if number != self._round and self.training and not self._looks:
                ledger.open_tape(self.dataset, place, how="resumed")
                self._how, self._left = "next", place
            elif moved:
                self._tape.settle()
            self._round, self._tape = number, ledger.Tape()
            if self.training and not self._looks:
                how, left = self._how, self._left
                self._tape = ledger.open_tape(self.dataset, place, replicas, how=how, left=left)
                self._how, self._left = "next", None

    def _wrapped(self, made: tf.data.Dataset) -> tf.data.Dataset:
        if self._batch_function is not None:
            made = made.map(self._batch_function)
        return made if self.epoch_steps % self._per_execution else as_endless(made, self._traced)
