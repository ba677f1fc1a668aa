"""The global random generators: what they hold, and what data that is made ahead has drawn.

They are Python's, numpy's, and that which gives TensorFlow's `tf.random.…` its seeds outside of
functions: in a callback, or in a generator.

A script's generator may draw from them. TensorFlow runs it some batches ahead of the step that
trains, another number of them on each worker, so what the generators hold now is not what the
step's own batch has left. Where training is to go on after a failure, it is that which counts.
"""

from __future__ import annotations

import itertools
import random
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from tensorflow.python.eager import context

State = tuple[Any, ...]  # of each; a state of an earlier version may lack the last ones


def take() -> State:
    """What the generators hold now."""
    python, numpy = random.getstate(), np.random.get_state()
    seeds = _seeds_of_tensorflow()
    return (python, numpy) if seeds is None else (python, numpy, seeds.getstate())


def give(state: State) -> None:
    """Has the generators go on from `state`."""
    python, numpy, *rest = state
    random.setstate(python)
    np.random.set_state(numpy)
    seeds = _seeds_of_tensorflow()
    if rest and seeds is not None and seeds.getstate() != rest[0]:
        seeds.setstate(rest[0])
        # An op that has drawn by one of these seeds would go on from there: as in `set_seed`.
        eager: Any = context.context()
        eager.clear_kernel_cache()


def are_equal(one: State, other: State) -> bool:
    """Whether both draw the same from there on."""
    if one[0] != other[0] or one[2:] != other[2:]:
        return False
    return all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))


def _seeds_of_tensorflow() -> random.Random | None:
    """What `tf.random.set_seed` seeds; None where another TensorFlow keeps it elsewhere."""
    return getattr(context.context(), "_rng", None)


class Drawn:
    """What the batches of some data have drawn, when they were made.

    Attributes:
      any: some data has drawn something, in this run of the script or an earlier one. Then what
        is passed by has to be made again: what follows may depend on it.
      surely: that which is being read does, and not Python that a step calls in another thread.
      calls: how often such Python was begun, and how much of it runs.
      by_steps: something was drawn while such Python ran.

    Args:
      generator: where the batches come from; None for what each reader looks at anew.
    """

    any: ClassVar[bool] = False
    surely: ClassVar[bool] = False
    calls: ClassVar[tuple[int, int]] = (0, 0)
    by_steps: ClassVar[bool] = False
    _counts: ClassVar[threading.Lock] = threading.Lock()
    # What is read of one is left for the next call that reads it, and draws nothing there.
    _that_draw: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, generator: Any = None) -> None:
        self._generator = generator
        self._surely = generator is not None and generator in Drawn._that_draw
        self._is_open, self._around = False, False
        self._before: deque[tuple[int, State]] = deque()
        self._making: tuple[int, State] | None = None  # the batch that may draw just now
        self._draws = False  # this data has drawn
        self._first = 0  # the number of the epoch's first batch
        self._after: State | None = None
        self._stop: int | None = None
        self._goes_on = threading.Event()

    @contextmanager
    def looks(self) -> Iterator[None]:
        """While it lasts, the main thread looks at batches: nobody else draws then."""
        before = take()
        yield
        if not are_equal(before, take()):
            self._has_drawn(surely=True)

    def begins(self) -> None:
        """An epoch's first step is about to come."""
        self._after = None
        if not self._is_open:
            self._is_open, self._around = True, Drawn.surely
        Drawn.surely = self._surely

    def each(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields an epoch's batches, and notes what each draws. Called by the reading thread."""
        nothing = object()
        for number in itertools.count(self._first):
            while (goes_on := self._goes_on) and number == self._stop:
                goes_on.wait()
            calls, before = Drawn.calls, take()
            # Who asks while the batch is being made may find that it has drawn in part.
            self._making = number, before
            try:
                batch = next(batches, nothing)
                if batch is nothing:
                    return
                if not are_equal(before, take()):
                    self._before.append((number, before))
                    self._has_drawn(surely=Drawn.calls == calls and not calls[1])
                    Drawn.surely = Drawn.surely or self._surely
            finally:
                self._making = None
            yield batch

    def before(self, step: int) -> State | None:
        """What they held before anything was drawn for `step` of this epoch, or a later one.

        None where nothing has been: then it is what they hold now. What else was drawn since then,
        by a callback during the epoch, is drawn again. Take what they hold before you ask: the
        thread that reads may begin to draw meanwhile.
        """
        if self._after is not None:
            return self._after
        making = self._making
        noted = [*self._before]
        if making is not None and (self._draws or not are_equal(making[1], take())):
            noted.append(making)
        return next((state for number, state in noted if number >= self._first + step), None)

    def takes(self, step: int) -> None:
        """Nobody will ask for a step before this one."""
        while self._before and self._before[0][0] < self._first + step:
            self._before.popleft()

    def ends(self, steps: int) -> None:
        """The epoch has had so many steps; validation may come, and draw."""
        self._first += steps
        now = take()
        self._after = self.before(0) or now
        if self._is_open:
            self._is_open, Drawn.surely = False, self._around

    def _has_drawn(self, *, surely: bool) -> None:
        Drawn.any = self._draws = True
        if surely and not self._surely:
            self._surely = True
            if self._generator is not None:
                Drawn._that_draw.add(self._generator)

    @staticmethod
    @contextmanager
    def not_by_data() -> Iterator[None]:
        """While it lasts, Python runs that a step calls, and may draw."""
        with Drawn._counts:
            Drawn.calls = Drawn.calls[0] + 1, Drawn.calls[1] + 1
        before = None if Drawn.by_steps else take()
        try:
            yield
        finally:
            if before is not None and not are_equal(before, take()):
                Drawn.by_steps = True
            with Drawn._counts:
                Drawn.calls = Drawn.calls[0], Drawn.calls[1] - 1

    @contextmanager
    def stops_at(self, step: int) -> Iterator[None]:
        """While it lasts, the thread that reads makes no batch from this step on."""
        self.stop(step)
        try:
            yield
        finally:
            self.stop(None)

    def stop(self, step: int | None) -> None:
        """The thread that reads makes no batch of the epoch from this step on; None: it goes on."""
        self._stop = None if step is None else self._first + step
        before, self._goes_on = self._goes_on, threading.Event()
        before.set()  # who waits looks again
