"""What the callbacks of a training remember, and what else their code has changed.

A callback with `get_state()` and `set_state(state)` says itself what it remembers. Of any other
one it is the attributes that hold plain data (plain_data.py). That is all that Keras's own
callbacks decide by: also functions, for `min_delta` has its sign with a `monitor_op`. Besides it
is what the code of callbacks reaches outside of them (reached_values.py), and objects of the
script's own that they hold: of these, what has changed since the training began.
"""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import global_random
from tfrun.data.dataset import Dataset
from tfrun.data.generator_states import GENERATORS
from tfrun.job.world import has_asked, world
from tfrun.state import kept_outside, plain_data
from tfrun.state.callback_state import NOT_STATE, STATELESS, One, every, says_itself
from tfrun.state.held_values import Held, as_now, is_large
from tfrun.state.plain_data import is_of_script, is_own
from tfrun.state.reached_values import Reach, Reached, reached

_OF_ITERATORS = {"builtins", "itertools", "tensorflow"}  # modules
# Data of which no code of the script's makes the samples.
_DRAWS_NOTHING = (np.ndarray, tf.Tensor, list, tuple, dict, Dataset)
_CHANGEABLE = (list, dict, set, deque, np.ndarray)
# Their state is known otherwise, or is none.
_OTHERS = (
    *(keras.callbacks.Callback, keras.Layer, keras.Metric, keras.Optimizer, keras.Loss),
    *(keras.utils.PyDataset, tf.Module, BaseException, type),
)


class _OfOne(NamedTuple):
    """Of one callback: the name of its class, what it says itself, its attributes.

    And whether another worker has them.
    """

    name: str
    state: Held | None = None
    attributes: Mapping[str, Held] = MappingProxyType({})
    is_elsewhere: bool = False


class Taken(NamedTuple):
    """What there was at a time.

    Attributes:
      callbacks: of each of them.
      outside: of places outside of them, by their names.
      lost: what cannot be kept, as people know it.
    """

    callbacks: list[_OfOne]
    outside: dict[str, Held]
    lost: list[str]


class _There(NamedTuple):
    """Places outside of callbacks as they are now, by their names.

    Attributes:
      values: what is there, and what sets it.
      objects: those of the script's own classes, whose attributes are such places.
    """

    values: dict[str, tuple[Any, Callable[[Any], object]]]
    objects: dict[str, Any]


class Memory:
    """Of the callbacks of one training, while it lasts in this process.

    Args:
      callbacks: before they see it begin.
      model: what it trains.
      data: what it trains on. Where that may draw from random generators, those outside of
        callbacks are its own.

    Attributes:
      stayed: the training goes on in its process, in which nothing is lost.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any = None, data: Any = None) -> None:
        self.stayed = False
        self._generators = isinstance(data, _DRAWS_NOTHING)
        self._model = model
        self._reach = Reach({}, frozenset(), frozenset())
        self._data: set[str] = set()  # the places of large values
        self._first = self._looked_at(callbacks).outside
        self._begun: Taken | None = None
        self._elsewhere = {id(one.callback) for one in every(callbacks) if one.is_elsewhere}

    def begun(self, callbacks: Sequence[Any]) -> None:
        """They have seen it begin; in a process that stays, perhaps once more."""
        if self._begun is None:
            known = set(self._reach.places)
            self._begun = self._looked_at(callbacks)
            new = self._reach.places.keys() - known
            self._first |= {n: v for n, v in self._begun.outside.items() if n in new}

    def _looked_at(self, callbacks: Sequence[Any]) -> Taken:
        ones = every(callbacks)
        found = reached([one.callback for one in ones], self._model)
        self._reach = found._replace(places={**found.places, **self._reach.places})
        values = self._there(ones).values.items()
        self._data |= {name for name, (value, _) in values if is_large(value)}
        return self.take(callbacks)

    def take(self, callbacks: Sequence[Any]) -> Taken:
        """What there is now."""
        lost: list[str] = []
        ones = every(callbacks)
        each = [_of_one(i, one, lost) for i, one in enumerate(ones)]
        values = self._there(ones).values.items()
        pairs = ((name, as_now(value, f"outside/{name}")) for name, (value, _) in values)
        outside = {name: held for name, held in pairs if held is not None}
        return Taken(each, outside, list(dict.fromkeys(lost)))

    def _there(self, ones: Sequence[One]) -> _There:
        there = _There({}, {})
        for i, (callback, elsewhere) in enumerate(ones):
            if not (isinstance(callback, STATELESS) or says_itself(callback) or elsewhere):
                for key, value in list(vars(callback).items()):
                    if key not in NOT_STATE and is_own(value):
                        here = Reached(lambda: None, partial(setattr, callback, key))
                        self._find(there, f"{i}.{key}", value, here)
        for name, place in self._reach.places.items():
            try:
                value = place.get()
            except LookupError:  # code sets it later, or has deleted it
                continue
            self._find(there, name, value, place)
        for name in self._data & there.values.keys():
            del there.values[name]
        return there

    def _find(self, there: _There, name: str, value: Any, place: Reached) -> None:
        """Adds a place, or those of the attributes of an object that is there."""
        if isinstance(value, _OTHERS):
            return
        if is_own(value):
            if not any(value is one for one in there.objects.values()):
                there.objects[name], attributes = value, vars(value)
                for key, item in list(attributes.items()):
                    put = partial(attributes.__setitem__, key)
                    assigned, changes = key in self._reach.attributes, key in self._reach.names
                    own = Reached(place.get, put, assigned, changes)
                    self._find(there, f"{name}.{key}", item, own)
        elif place.assigned or (place.changes and isinstance(value, _CHANGEABLE)):
            there.values[name] = value, place.put
        elif isinstance(value, GENERATORS):  # which others may draw from as well
            global_random.know(f"callbacks/{name}", value)

    def kept(self, taken: Taken, arrays: dict[str, NDArray]) -> dict[str, Any]:
        """Returns as JSON what another process needs; arrays go into `arrays`.

        Once the script has asked which worker this is, what callbacks have not changed since the
        training began may be this worker's own.
        """
        begun = self._begun.callbacks if self._begun else []
        callbacks = []
        for i, one in enumerate(taken.callbacks):
            mine = begun[i].attributes if i < len(begun) else {}
            same = [name for name, held in one.attributes.items() if held.is_as(mine.get(name))]
            own = set(same) if has_asked() else ()
            given = {name: held for name, held in one.attributes.items() if name not in own}
            found: dict[str, Any] = {"class": one.name, "attributes": _put(given, arrays)}
            found |= {"elsewhere": one.is_elsewhere, "as begun": same}
            if one.state is not None:
                found |= _put({"state": one.state}, arrays)
            callbacks.append(found)
        first, now = self._first, taken.outside.items()
        changed = {name: held for name, held in now if not held.is_as(first.get(name))}
        lost = list(taken.lost)
        if not self._generators:
            lost += [f"{_shown(n)} (a generator)" for n, held in changed.items() if _draws(held)]
            changed = {n: held for n, held in changed.items() if not _draws(held)}
        return {"callbacks": callbacks, "outside": _put(changed, arrays), "lost": lost}

    def put_back(
        self, callbacks: Sequence[Any], values: dict[str, Any], arrays: dict[str, NDArray]
    ) -> None:
        """Gives back what there was in the same training of an earlier run.

        Args:
          callbacks: the namesakes of those of that run.
          values: from `kept`.
          arrays: likewise.
        """
        lost = [] if self.stayed else list(values.get("lost", ()))
        of_all = not has_asked()  # else one worker may collect what no other one has changed
        begun = self._begun.callbacks if self._begun and has_asked() else []
        both = zip(every(callbacks), values["callbacks"], strict=False)
        for i, ((callback, elsewhere), state) in enumerate(both):
            if state["class"] != type(callback).__name__ or elsewhere:
                continue
            if state.get("elsewhere"):
                if is_of_script(type(callback)):
                    of_all = False
                    if id(callback) in self._elsewhere or not self.stayed:
                        lost.append(f"{state['class']}, which runs on the chief alone")
                continue
            if "state" in state:
                callback.set_state(plain_data.decode(state["state"], arrays))
            if i < len(begun):
                self._undo(vars(callback), begun[i].attributes, state["attributes"])
            given = state["attributes"]
            if world().round == 0:  # another job's, whose script may have had other settings
                given = {n: v for n, v in given.items() if n not in state.get("as begun", ())}
            for name, value in given.items():
                with contextlib.suppress(LookupError):  # a function of code that was another then
                    now = vars(callback).get(name)
                    setattr(callback, name, self._restored(now, value, arrays))
        there = self._there(every(callbacks))  # with those that have come back
        self._put_back_outside(there, values.get("outside", {}), arrays, undoes=of_all)
        kept_outside.tell_lost(lost)

    def _put_back_outside(
        self, there: _There, kept: dict[str, Any], arrays: dict[str, NDArray], *, undoes: bool
    ) -> None:
        for name, (value, put) in there.values.items() if undoes else ():
            held = self._first.get(name)
            now = None if held is None or name in kept else as_now(value, f"outside/{name}")
            if held is None or now is None or now.is_as(held):
                continue
            if self._generators or not _draws(held):
                put(self._restored(value, held.value, held.arrays))
        for name, value in kept.items():
            holder, _, key = name.rpartition(".")
            with contextlib.suppress(LookupError):
                if name in there.values:
                    now, put = there.values[name]
                    put(self._restored(now, value, arrays))
                elif name in self._reach.places:
                    self._reach.places[name].put(plain_data.decode(value, arrays))
                elif holder in there.objects:
                    vars(there.objects[holder])[key] = plain_data.decode(value, arrays)

    def _restored(self, now: Any, value: Any, arrays: Mapping[str, NDArray]) -> Any:
        return plain_data.restored(now, value, arrays, generators=self._generators)

    def _undo(self, there: dict[str, Any], begun: Mapping[str, Held], kept: dict[str, Any]) -> None:
        """Gives attributes back what they held as it began, and had not changed then."""
        for name, held in begun.items():
            now = None if name in kept or name not in there else as_now(there[name], "")
            if now is not None and now.value != held.value:
                there[name] = self._restored(there[name], held.value, held.arrays)


_of_call: tuple[int, Memory] | None = None


def of_call(number: int, callbacks: Sequence[Any], model: Any, data: Any) -> Memory:
    """The one of a training, by its number in the script; the same where it begins anew here."""
    global _of_call
    if _of_call is None or _of_call[0] != number:
        _of_call = number, Memory(callbacks, model, data)
    return _of_call[1]


def forget() -> None:
    """The training is done: nobody else may hold its model."""
    global _of_call
    _of_call = None


def _of_one(number: int, one: One, lost: list[str]) -> _OfOne:
    callback = one.callback
    kind, name = type(callback).__name__, f"callbacks/{number}"
    if isinstance(callback, STATELESS) or one.is_elsewhere:
        return _OfOne(kind, is_elsewhere=one.is_elsewhere)
    if says_itself(callback):
        arrays: dict[str, NDArray] = {}
        state = plain_data.encode(callback.get_state(), arrays, name)
        return _OfOne(kind, Held(state, arrays))
    attributes = {}
    for key, value in list(vars(callback).items()):
        if key in NOT_STATE or is_own(value):
            continue
        if (held := as_now(value, f"{name}/{key}")) is not None:
            attributes[key] = held
        elif _begins_anew(value):
            lost.append(f"{kind}.{key} ({type(value).__name__})")
    return _OfOne(kind, attributes=attributes)


def _begins_anew(value: Any) -> bool:
    """Whether a value that cannot be kept has a state of its own, of which nobody else knows."""
    if isinstance(value, io.IOBase):  # opened anew, it may have lost what was in it
        return not value.closed and value.writable()
    if isinstance(value, Iterator):
        return type(value).__module__.partition(".")[0] in _OF_ITERATORS
    return is_of_script(type(value)) and not isinstance(value, _OTHERS)


def _put(every: dict[str, Held], arrays: dict[str, NDArray]) -> dict[str, Any]:
    for held in every.values():
        arrays.update(held.arrays)
    return {name: held.value for name, held in every.items()}


def _draws(held: Held) -> bool:
    """Whether it is a random generator's."""
    return isinstance(held.value, dict) and "generator" in held.value


def _shown(name: str) -> str:
    """A place's name, as people know it."""
    return name.rpartition(":")[2].rpartition("/")[2]
