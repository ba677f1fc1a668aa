"""What of a script's Python values outlives a process: as JSON, and arrays beside it.

Numbers, texts, arrays, and what Python collects them in; functions and classes by their names, as
one run of the script finds them where another did; and what random generators have come to.
"""

from __future__ import annotations

import contextlib
import random
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMED = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type)
# Collections that are made of a list of what they hold.
_OF_ITEMS: dict[str, Any] = {one.__name__: one for one in (tuple, set, frozenset)}
# And that are made of a dictionary.
_OF_PAIRS: dict[str, Any] = {one.__name__: one for one in (Counter, OrderedDict)}
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


def encode(value: Any, arrays: dict[str, NDArray], name: str) -> Any:
    """Returns `value` as JSON; its arrays go into `arrays` under names that begin with `name`.

    Raises:
      TypeError: it holds something else.
    """
    match value:
        case None | bool() | str():
            return value
        case np.ndarray() if not value.dtype.hasobject and value.dtype.names is None:
            key = f"{name}#{len(arrays)}"
            arrays[key] = value
            return {"array": key}
        case np.generic():
            return {"scalar": encode(np.asarray(value), arrays, name)}
        case int() | float() if type(value) in (int, float):
            return value
        case list() if type(value) is list:
            return [encode(item, arrays, name) for item in value]
        case dict() if type(value) is dict:
            pairs = [[encode(k, arrays, name), encode(v, arrays, name)] for k, v in value.items()]
            return {"dict": pairs}
        case bytes():
            return {"bytes": value.hex()}
        case Path():
            return {"path": str(value)}
        case deque() if type(value) is deque:
            return {"deque": [encode(list(value), arrays, name), value.maxlen]}
        case defaultdict() if type(value) is defaultdict:
            made = encode(value.default_factory, arrays, name)
            return {"defaultdict": [made, encode(dict(value), arrays, name)]}
    kind = type(value).__name__
    # A callback may remember one. By its name: who only copies snapshots has no TensorFlow.
    if kind == "EagerTensor" and value.dtype.is_numpy_compatible:
        return {"tensor": encode(value.numpy(), arrays, name)}
    if type(value) is _OF_ITEMS.get(kind):
        return {kind: [encode(item, arrays, name) for item in value]}
    if type(value) is _OF_PAIRS.get(kind):
        return {kind: encode(dict(value), arrays, name)}
    if type(value) in _GENERATORS:
        return {"generator": [kind, encode(_drawn(value), arrays, name)]}
    if isinstance(value, _NAMED) and _called(where := _name_of(value)) is value:
        return {"named": where}
    raise TypeError(f"a {kind} is not plain data")


def decode(value: Any, arrays: Mapping[str, NDArray]) -> Any:
    """Returns what `encode` was given.

    Raises:
      LookupError: it holds a function or a class that this process does not have.
    """
    match value:
        case list():
            return [decode(item, arrays) for item in value]
        case {"array": key}:
            return arrays[key]
        case {"tensor": item}:
            import tensorflow as tf

            return tf.constant(decode(item, arrays))
        case {"scalar": item}:
            return decode(item, arrays)[()]
        case {"dict": pairs}:
            return {decode(k, arrays): decode(v, arrays) for k, v in pairs}
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"path": text}:
            return Path(text)
        case {"deque": [items, most]}:
            return deque(decode(items, arrays), most)
        case {"defaultdict": [made, pairs]}:
            return defaultdict(decode(made, arrays), decode(pairs, arrays))
        case {"generator": [kind, drawn]}:
            return _generator(kind, decode(drawn, arrays))
        case {"named": where}:
            if (found := _called(where)) is None:
                raise LookupError(where)
            return found
        case dict():
            ((kind, items),) = value.items()
            return {**_OF_ITEMS, **_OF_PAIRS}[kind](decode(items, arrays))
    return value


def _name_of(value: Any) -> str:
    module = getattr(value, "__module__", None) or "numpy"  # of numpy's functions for arrays
    return f"{module}:{getattr(value, '__qualname__', value.__name__)}"


def _called(where: str) -> Any:
    """What a name stands for in this process; None for nothing."""
    module, _, names = where.partition(":")
    found: Any = sys.modules.get(module)
    with contextlib.suppress(Exception):  # a module that imports others only then may fail
        for name in names.split("."):
            found = getattr(found, name)
        return found
    return None


def _drawn(generator: Any) -> Any:
    """What a random generator has come to."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def _generator(kind: str, drawn: Any) -> Any:
    """One that draws as another one would from here on; the other may be the data's too."""
    if kind == "Random":
        made: Any = random.Random()
        made.setstate(drawn)
        return made
    bits = getattr(np.random, drawn["bit_generator"])()
    if kind == "Generator":
        bits.state = drawn
        return np.random.Generator(bits)
    made = np.random.RandomState(bits)
    made.set_state(drawn)
    return made
