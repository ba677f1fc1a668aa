"""The random generators that all share: what they hold, and what data made ahead has drawn.

They are Python's global one, numpy's, that which gives TensorFlow's `tf.random.…` its seeds outside
of functions (in a callback, or in a generator), and those of the script's own that its step draws
from, or its callbacks.

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
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from tensorflow.python.eager import context

from tfrun.data.generator_states import goes_on, held_by

State = tuple[Any, ...]  # of each; a state of an earlier version may lack the last ones
OF_SCRIPT = 3  # where a state has those of the script's own, if any are known, by their names

_PIPELINE = "pipeline"  # Python that runs, see `Drawn`
# So many calls of a pipeline's Python are watched: each is an element's, and 0.1 ms is long there.
_WATCHED = 200
_own: dict[str, Any] = {}  # the script's, as far as they are known, by names
_first: dict[str, Any] = {}  # what these held when they came to be known
_later: dict[str, Any] = {}  # what others are to hold then


def know(name: str, generator: Any) -> None:
    """From now on this generator of the script's is one of them.

    Args:
      name: the same in each run of the script.
      generator: of one of `GENERATORS`.
    """
    if is_known(generator):
        return
    while name in _own:
        name += "'"
    _own[name], _first[name] = generator, held_by(generator)
    if name in _later:
        goes_on(generator, _later.pop(name))


def is_known(generator: Any) -> bool:
    """Whether it is one of them."""
    return any(one is generator for one in _own.values())


def take() -> State:
    """What the generators hold now."""
    python, numpy = random.getstate(), np.random.get_state()
    seeds = _seeds_of_tensorflow()
    state = (python, numpy, None if seeds is None else seeds.getstate())
    if not (_own or _later):
        return state
    return *state, {**_later, **{name: held_by(one) for name, one in _own.items()}}


def give(state: State) -> None:
    """Has the generators go on from `state`; those of which it has None stay where they are."""
    python, numpy, *rest = state
    of_tensorflow = rest[0] if rest else None
    own: dict[str, Any] | None = rest[1] if len(rest) > 1 else {}
    with Drawn.now.put_back():
        if python is not None:
            random.setstate(python)
        if numpy is not None:
            np.random.set_state(numpy)
        seeds = _seeds_of_tensorflow()
        if seeds is not None and of_tensorflow not in (None, seeds.getstate()):
            seeds.setstate(of_tensorflow)
            # An op that has drawn by one of these seeds would go on from there: as in `set_seed`.
            eager: Any = context.context()
            eager.clear_kernel_cache()
        if own is None:
            return
        # One that was not known yet when the state was taken held what it held at first.
        for name, one in _own.items():
            goes_on(one, own.get(name, _first[name]))
        _later.update({name: held for name, held in own.items() if name not in _own})


def give_but(state: State, besides: Set[int]) -> None:
    """As `give`; these generators stay where they are, and may be drawn from meanwhile.

    Args:
      state: of all.
      besides: positions in it.
    """
    kept = [None if which in besides else held for which, held in enumerate(state)]
    give((*kept, *[None] * (OF_SCRIPT + 1 - len(kept))) if OF_SCRIPT in besides else tuple(kept))


def are_equal(one: State, other: State) -> bool:
    """Whether both draw the same from there on."""
    return all(map(hold_equal, one, other))


def hold_equal(one: Any, other: Any) -> bool:
    """The same of a single one of them, or of all of the script's that both know."""
    if isinstance(one, dict):
        return all(hold_equal(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if type(one) is tuple and any(isinstance(part, np.ndarray) for part in one):
        return all(map(hold_equal, one, other))
    return one == other


def _seeds_of_tensorflow() -> random.Random | None:
    """What `tf.random.set_seed` seeds; None where another TensorFlow keeps it elsewhere."""
    return getattr(context.context(), "_rng", None)


class Drawn:
    """What the batches of some data have drawn, when they were made.

    Python of the script's may draw at the same time, in another thread: callbacks, and functions
    that a step calls. What is drawn while none of it runs, the data has drawn; and while functions
    ran, if each of them has been seen to run and to draw nothing.

    Args:
      generator: where the batches come from; None for what each reader looks at anew.

    Attributes:
      any: some data has drawn something, in this run of the script or an earlier one. Then what
        is passed by has to be made again: what follows may depend on it.
      by_steps: something was drawn while Python ran that a step calls.
      now: of the data that is being read.
      by_pipelines: which of them `tf.data` pipelines have drawn from, by Python code of theirs:
        positions in `State`. How far ahead TensorFlow makes elements nobody knows.
      draws: this data does.
      is_read: Python makes the batches, or elements of them.
    """

    any: ClassVar[bool] = False
    by_steps: ClassVar[bool] = False
    by_pipelines: ClassVar[set[int]] = set()
    now: ClassVar[Drawn]
    # What is read of one is left for the next call that reads it, and draws nothing there.
    _that_draw: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, generator: Any = None) -> None:
        self._of = None if generator is None else weakref.ref(generator)
        self.draws, self.is_read = generator is not None and generator in Drawn._that_draw, False
        self._around: Drawn | None = None  # what is read when this is not any more
        self._before: deque[tuple[int, State]] = deque()  # where they held something else after it
        self._making: tuple[int, State] | None = None  # the batch that may draw just now
        self._first = 0  # the number of the epoch's first batch
        self._after: State | None = None
        self._stop: int | None = None
        self._goes_on = threading.Event()
        # A signal's handler may ask in the midst of this.
        self._lock = threading.RLock()
        self._main = ""  # what the main thread runs
        self._running: list[Any] = []  # it, and functions of a step
        self._ran: set[Any] = set()  # since what runs now has begun
        self._began: State = ()  # what they held then
        self._overlaps = False  # a batch was made meanwhile
        self._draw: dict[Any, bool] = {}  # of functions, while none was
        self._seen: State = ()  # when the last one ended, or the batch was begun
        self._has_drawn = False  # the batch, when nothing else ran
        self._left_to_watch = 0  # calls of a pipeline's Python

    @contextmanager
    def looks(self) -> Iterator[None]:
        """While it lasts, the main thread looks at batches: nobody else draws then."""
        before = take()
        yield
        if not are_equal(before, take()):
            self._note()

    def is_of_pipeline(self) -> None:
        """It is a `tf.data` pipeline's, which calls Python."""
        self.is_read, self._left_to_watch = True, _WATCHED

    def begins(self) -> None:
        """An epoch's first step is about to come."""
        self._after = None
        if Drawn.now is not self:
            self._around, Drawn.now = Drawn.now, self

    def each(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields an epoch's batches, and notes what each draws. Called by the reading thread."""
        nothing = object()
        for number in itertools.count(self._first):
            while (goes_on := self._goes_on) and number == self._stop:
                goes_on.wait()
            with self._lock:
                self._seen = take()
                # Who asks while the batch is being made may find that it has drawn in part.
                self._making, self._has_drawn = (number, self._seen), False
                self._overlaps = True
            try:
                batch = next(batches, nothing)
                if batch is nothing:
                    return
                with self._lock:
                    after, making = take(), self._making  # they may have been put back since
                    assert making is not None
                    if self._has_drawn or not are_equal(making[1], after):
                        self._before.append(making)
                        self._look(after)
            finally:
                self._making = None
            yield batch

    def _look(self, after: State) -> None:
        """Notes whether the batch in the making has drawn, in whose time they changed."""
        others = not all(map(self._is_idle, self._running))
        if self._has_drawn or (not others and not are_equal(self._seen, after)):
            self._note()

    def _is_idle(self, function: Any) -> bool:
        """Whether it has run, and has drawn nothing."""
        return not self._draw.get(function, True)

    def _note(self) -> None:
        Drawn.any = self.draws = True
        if self._of is not None and (generator := self._of()) is not None:
            Drawn._that_draw.add(generator)

    def before(self, step: int) -> State | None:
        """What they held before anything was drawn for `step` of this epoch, or a later one.

        None where nothing has been: then it is what they hold now. What else was drawn since then,
        by a callback during the epoch, is drawn again. Take what they hold before you ask: the
        thread that reads may begin to draw meanwhile.
        """
        if self._after is not None:
            return self._after
        with self._lock:
            if self._making is not None and not self.draws:
                self._look(take())
            if not self.draws:
                return None
            noted = [*self._before, *([self._making] if self._making is not None else [])]
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
        if Drawn.now is self and self._around is not None:
            self._around, Drawn.now = None, self._around

    # --- other Python of the script's ---------------------------------------------------------

    def runs(self, what: str) -> None:
        """What the main thread runs from now on: "callbacks", an eager "step"; "" for neither."""
        is_known = self.draws and not self._left_to_watch  # who draws: no step pays for more
        if what == self._main or (is_known and not self._main):
            return
        with self._lock:
            if self._main:
                self._ends(self._main)
            self._main = "" if is_known else what
            if self._main:
                self._begins(what)

    @staticmethod
    @contextmanager
    def not_by_data(function: Any) -> Iterator[None]:
        """While it lasts, Python runs that a step calls, and may draw.

        Args:
          function: which, hashable.
        """
        here = Drawn.now
        with here._lock:
            here._begins(function)
        try:
            yield
        finally:
            with here._lock:
                here._ends(function)

    @staticmethod
    @contextmanager
    def by_pipeline() -> Iterator[None]:
        """While it lasts, Python runs that a `tf.data` pipeline calls."""
        here = Drawn.now
        if not here._left_to_watch:
            yield
            return
        with here._lock:
            here._left_to_watch -= 1
            here._begins(_PIPELINE)
        try:
            yield
        finally:
            with here._lock:
                here._ends(_PIPELINE)

    @contextmanager
    def not_by_batches(self) -> Iterator[None]:
        """While it lasts, something else draws in the main thread, as callbacks do."""
        with self._lock:
            self._begins("callbacks")
        try:
            yield
        finally:
            with self._lock:
                self._ends("callbacks")

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """While it lasts, the generators are given what they held before: nobody draws that."""
        with self._lock:
            self._nobody_runs_yet()
            yield
            self._began = self._seen = take()
            if self._making is not None and not self.draws:
                self._making = self._making[0], self._seen

    def _begins(self, what: Any) -> None:
        self._nobody_runs_yet()
        self._running.append(what)
        self._ran.add(what)

    def _nobody_runs_yet(self) -> None:
        if self._running:
            return
        self._began, self._overlaps = take(), self._making is not None
        self._ran = set()
        if self._overlaps and not are_equal(self._seen, self._began):
            self._has_drawn = True

    def _ends(self, what: Any) -> None:
        self._running.remove(what)
        if self._running:
            return
        self._seen = take()
        drawn, others = not are_equal(self._began, self._seen), self._ran - {_PIPELINE}
        if _PIPELINE not in self._ran or not all(map(self._is_idle, others)):
            self._overlaps = self._overlaps or _PIPELINE in self._ran
            self._judge(self._ran - {"callbacks", _PIPELINE}, drawn=drawn)
        elif drawn:
            pairs = enumerate(zip(self._began, self._seen, strict=False))
            Drawn.by_pipelines |= {which for which, pair in pairs if not hold_equal(*pair)}
            self._note()

    def _judge(self, functions: set[Any], *, drawn: bool) -> None:
        """Says who has drawn while these and none else ran, if anything was."""
        if not functions:
            return
        if not self._overlaps:
            if len(self._ran) == 1 or not drawn:
                self._draw |= {each: drawn or self._draw.get(each, False) for each in functions}
        elif drawn and all(map(self._is_idle, self._ran)):
            self._has_drawn, drawn = True, False
        Drawn.by_steps = Drawn.by_steps or (drawn and not self.draws)

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


Drawn.now = Drawn()
