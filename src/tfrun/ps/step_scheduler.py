"""Schedules a pass's steps on the chief, and hears of each one that has ended."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.distribute.coordinator import coordinator_context

from tfrun.ps.feeds import BatchFeed
from tfrun.ps.pipelines import PipelineFeed
from tfrun.ps.reading_turns import Turns
from tfrun.ps.server_step import RING, mark_of
from tfrun.ps.staleness import Flight, may_begin

POLL_SECONDS = 0.5  # so often an error of the coordinator is looked for while nothing ends
_NOTHING = object()


class PassRun:
    """One pass over data: steps in flight, and their results.

    Args:
      function: the step, a concrete function.
      resource: what workers hold of it.
      places: (epoch, step) of the batches, in the order in which they are begun.
      number: of the first step; each step has one of its own.
      turns: who reads next; None where the chief names the batches.

    Attributes:
      number: of the next step.
      applied: steps that have ended and had a batch.
    """

    def __init__(
        self,
        coordinator: Any,
        function: Any,
        feed: BatchFeed,
        resource: Any,
        places: Iterator[tuple[int, int]],
        number: int,
        turns: Turns | None,
    ) -> None:
        self._coordinator, self._function = coordinator, function
        self._feed, self._resource, self._places = feed, resource, places
        self._workers = coordinator.strategy.workers
        self._bound = coordinator.strategy.max_staleness
        self._flight, self.number = Flight(), number
        self._first = number
        self._ended: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        self._turns = turns
        self._stopped = self._all_begun = False
        self.applied = 0

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yields (number of the batch in this pass, from 0; the step's result) as they end."""
        while True:
            self._begin()
            if not self._flight.begun:
                return
            ended = self._wait()
            if self._bound is None:
                self._begin()  # no worker waits for the callbacks that hear of these
            yield from ended

    def drain(self) -> list[tuple[int, Any]]:
        """Waits for all steps in flight, begins none; returns the results."""
        found = []
        turns = self._turns
        if turns is not None:
            turns.close()
        while self._flight.begun or (turns is not None and turns.open):
            if not self._flight.begun:  # for the worker whose element has failed
                self._schedule((0, 0))
            found += self._wait()
        if turns is not None and not self._stopped:
            turns.reopen()
        return found

    def stop(self) -> None:
        """Begins no further step, and waits for those in flight."""
        self._stopped = True
        self.drain()

    def _begin(self) -> None:
        while not self._stopped and not self._all_begun:
            if self._turns is not None and self._turns.over:
                return
            if not may_begin(
                self._flight,
                self.number,
                workers=self._workers,
                max_staleness=self._bound,
                ring=RING,
            ):
                return
            place = next(self._places, None)
            if place is None:
                self._all_begun = True
                return
            self._schedule(place)

    def _schedule(self, place: tuple[int, int]) -> None:
        number, self.number = self.number, self.number + 1
        self._flight = self._flight.begins(number)
        turns, feed = self._turns, self._feed
        closure = (
            self._of_position(number, place)
            if turns is None
            else self._of_pipeline(number, turns, cast(PipelineFeed, feed))
        )
        # The public `schedule` takes functions of graphs only, and tells nobody of their end.
        self._coordinator._cluster.schedule(closure, (self._resource,), {})

    def _of_position(self, number: int, place: tuple[int, int]) -> Any:
        """Returns a closure that trains one batch, whichever worker comes to it."""
        given = self._feed.arguments(mark_of(number), *place)
        arguments = [tf.convert_to_tensor(one) for one in given]

        def step(resource):
            result = self._function(*arguments, *_as_list(resource))
            self._ended.put((number, number - self._first, result))

        return step

    def _of_pipeline(self, number: int, turns: Turns, feed: PipelineFeed) -> Any:
        """Returns a closure that trains the next element of the worker that comes to it."""

        def step(_):
            here: Any = coordinator_context.get_current_dispatch_context()
            worker: int = here.worker_index
            if not turns.take(worker):
                turns.wait(POLL_SECONDS)
                self._ended.put((number, 0, _NOTHING))
                return
            try:
                result = self._function(feed.iterator(worker))
            except tf.errors.OutOfRangeError:
                turns.exhausts(worker)
                self._ended.put((number, 0, _NOTHING))
            except BaseException:
                feed.failed(worker)
                raise
            else:
                batch = feed.read(worker)
                turns.ends(worker)
                self._ended.put((number, batch, result))

        return step

    def _wait(self) -> list[tuple[int, Any]]:
        """Waits for at least one step to end; returns the batches and results of all that have.

        Raises:
          tf.errors.OpError: a step failed, and not for want of its worker.
        """
        found = []
        while not found:
            try:
                found.append(self._ended.get(timeout=POLL_SECONDS))
            except queue.Empty:
                self._coordinator.done()  # raises what a closure has raised
        while not self._ended.empty():
            found.append(self._ended.get())
        for number, _, _ in found:
            self._flight = self._flight.ends(number)
        done = [(batch, result) for _, batch, result in found if result is not _NOTHING]
        self.applied += len(done)
        return done


def _as_list(resource: Any) -> list[Any]:
    return list(resource) if isinstance(resource, list | tuple) else [resource]


class Rate:
    """True at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last = seconds, 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True
