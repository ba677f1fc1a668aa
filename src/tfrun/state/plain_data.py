"""What of a script's Python values outlives a process: as JSON, and arrays beside it.

Numbers, texts, arrays, and what Python collects them in; functions and classes by their names, as
one run of the script finds them where another did; what random generators have come to; and
objects of the script's own classes, with those of their attributes that are such data.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import fractions
import random
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.data.generator_states import GENERATORS, goes_on, held_by
from tfrun.process.sending import is_installed

SMALL = 1 << 20  # bytes of an array of which a copy is kept, as it is now
_MOST_INSIDE = 32  # objects that an object is in
_NAMED = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type)
# Collections that are made of a list of what they hold.
_OF_ITEMS: dict[str, Any] = {one.__name__: one for one in (tuple, set, frozenset)}
# And that are made of a dictionary.
_OF_PAIRS: dict[str, Any] = {one.__name__: one for one in (Counter, OrderedDict)}
_AS_THEY_ARE = {float, int, str, bool, type(None)}
_TRACKED = {"TrackedList": list, "TrackedDict": dict, "TrackedSet": set}
# And that say themselves what they are made of.
_OF_PARTS = (enum.Enum, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)
_OF_PARTS += (datetime.timezone, fractions.Fraction)
# What a class of the script's own may inherit from, for its objects to be nothing but attributes.
_PLAIN_BASES = {"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"}
_PLAIN_BASES |= {"types.SimpleNamespace", "argparse._AttributeHolder", "argparse.Namespace"}


def encode(value: Any, arrays: dict[str, NDArray], name: str, inside: tuple[Any, ...] = ()) -> Any:
    """Returns `value` as JSON; its arrays go into `arrays` under names that begin with `name`.

    Args:
      value: what is encoded.
      arrays: for its arrays: copies of small ones, for a script may go on to change them.
      name: see above.
      inside: the objects of the script's own classes that it is in.

    Raises:
      TypeError: it holds something else.
    """
    match value:
        case None | bool() | str():
            return value
        case np.ndarray() if not value.dtype.hasobject and value.dtype.names is None:
            key = f"{name}#{len(arrays)}"
            arrays[key] = value.copy() if value.nbytes <= SMALL else value
            return {"array": key}
        case np.generic():
            return {"scalar": encode(np.asarray(value), arrays, name)}
        case int() | float() if type(value) in (int, float):
            return value
        case list() if type(value) is list:
            items = list(value)
            if _AS_THEY_ARE.issuperset(map(type, items)):  # soon, for a loss of each step
                return items
            return [encode(item, arrays, name, inside) for item in items]
        case dict() if type(value) is dict:
            return {"dict": _pairs(value, arrays, name, inside)}
        case bytes():
            return {"bytes": value.hex()}
        case Path():
            return {"path": str(value)}
        case deque() if type(value) is deque:
            return {"deque": [encode(list(value), arrays, name, inside), value.maxlen]}
        case defaultdict() if type(value) is defaultdict:
            made = encode(value.default_factory, arrays, name)
            return {"defaultdict": [made, encode(dict(value), arrays, name, inside)]}
        case complex() if type(value) is complex:
            return {"made": ["builtins:complex", [value.real, value.imag]]}
        case tuple() if hasattr(value, "_fields"):
            items = encode(list(value), arrays, name, inside)
            return {"made": [_class_name(value), items]}
    kind = type(value).__name__
    if kind in _TRACKED and isinstance(value, _TRACKED[kind]):  # what Keras has made of a model's
        return encode(_TRACKED[kind](value), arrays, name, inside)
    # A callback may remember one. By its name: who only copies snapshots has no TensorFlow.
    if kind == "EagerTensor" and value.dtype.is_numpy_compatible:
        return {"tensor": encode(value.numpy(), arrays, name)}
    if type(value) is _OF_ITEMS.get(kind):
        return {kind: [encode(item, arrays, name, inside) for item in list(value)]}
    if type(value) is _OF_PAIRS.get(kind):
        return {kind: encode(dict(value), arrays, name, inside)}
    if isinstance(value, _OF_PARTS):
        return {"made": [_class_name(value), encode(_parts(value), arrays, name)]}
    if type(value) in GENERATORS:
        return {"generator": [kind, encode(held_by(value), arrays, name)]}
    if isinstance(value, _NAMED) and _called(where := _name_of(value)) is value:
        return {"named": where}
    if not is_own(value) or len(inside) > _MOST_INSIDE or any(one is value for one in inside):
        raise TypeError(f"a {kind} is not plain data")
    attributes = dict(vars(value))
    held = {}
    for key, item in attributes.items():
        mine: dict[str, NDArray] = {}
        with contextlib.suppress(TypeError):
            held[key] = encode(item, mine, f"{name}.{key}", (*inside, value))
            arrays.update(mine)
    return {"object": [_class_name(value), held, len(held) == len(attributes)]}


def _parts(value: Any) -> list[Any]:
    """What a class makes such a value of."""
    if isinstance(value, enum.Enum):
        return [value.value]
    if isinstance(value, datetime.timezone):
        return list(value.__getinitargs__())  # type: ignore[attr-defined]
    return list(value.__reduce__()[1])


def _pairs(
    value: dict[Any, Any], arrays: dict[str, NDArray], name: str, inside: tuple[Any, ...]
) -> list[Any]:
    items = list(value.items())
    return [[encode(k, arrays, name), encode(v, arrays, name, inside)] for k, v in items]


def is_own(value: Any) -> bool:
    """Whether a value is an object of a class of the script's own, or one that has no other use."""
    kind = type(value)
    is_plain = hasattr(value, "__dict__") and not isinstance(value, type)
    return (
        is_plain
        and kind is not object
        and all(
            f"{base.__module__}.{base.__qualname__}" in _PLAIN_BASES or is_of_script(base)
            for base in kind.__mro__
        )
    )


def is_of_script(one: Any) -> bool:
    """Whether a class or a function is of the script's own code."""
    module = getattr(one, "__module__", None)
    return isinstance(module, str) and is_script_module(module)


def is_script_module(name: str) -> bool:
    """Whether a module is the script, or one of its own beside it."""
    if name.partition(".")[0] == "tfrun":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or (isinstance(file, str) and not is_installed(file))


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
            return _found(where)
        case {"made": [where, parts]}:
            return _found(where)(*decode(parts, arrays))
        case {"object": [where, held, whole]}:
            kind = _found(where)
            if not whole:
                raise LookupError(f"attributes of a {where}")
            made = kind.__new__(kind)
            vars(made).update({key: decode(item, arrays) for key, item in held.items()})
            return made
        case dict():
            ((kind, items),) = value.items()
            return {**_OF_ITEMS, **_OF_PAIRS}[kind](decode(items, arrays))
    return value


def restored(
    old: Any, value: Any, arrays: Mapping[str, NDArray], *, generators: bool = False
) -> Any:
    """As `decode`; in the value that is there where it can, for others may hold it as well.

    Args:
      old: what is there.
      value: from `encode`.
      arrays: likewise.
      generators: so are random generators; else they are new ones, for the others may be the
        training's data.

    Raises:
      LookupError: as of `decode`.
    """
    match value:
        case list() if type(old) is list:
            there = dict(enumerate(old)), dict(enumerate(value))
            old[:] = _each_restored(*there, arrays, generators=generators).values()
            return old
        case {"dict": pairs} if type(old) is dict:
            there = {decode(k, arrays): v for k, v in pairs}
            return _refilled(old, _each_restored(old, there, arrays, generators=generators))
        case {"object": [where, held, _]} if is_own(old) and _class_name(old) == where:
            for key, item in held.items():
                with contextlib.suppress(LookupError):
                    now = vars(old).get(key)
                    vars(old)[key] = restored(now, item, arrays, generators=generators)
            return old
        case {"generator": [kind, drawn]} if generators and type(old).__name__ == kind:
            state = decode(drawn, arrays)
            if kind == "Random" or held_by(old)["bit_generator"] == state["bit_generator"]:
                return goes_on(old, state)
    new = decode(value, arrays)
    if type(old) is type(new):
        if isinstance(new, set | deque | defaultdict | Counter | OrderedDict):
            return _refilled(old, new)
        is_array = isinstance(new, np.ndarray) and old.flags.writeable
        if is_array and (old.shape, old.dtype) == (new.shape, new.dtype):
            old[...] = new
            return old
    return new


def _each_restored(
    old: Mapping[Any, Any],
    values: Mapping[Any, Any],
    arrays: Mapping[str, NDArray],
    *,
    generators: bool,
) -> dict[Any, Any]:
    """Each value in the one of its key; not two in the same."""
    used: set[int] = set()
    found = {}
    for key, value in values.items():
        there = old.get(key)
        mine = None if id(there) in used else there
        found[key] = restored(mine, value, arrays, generators=generators)
        used.add(id(there))
    return found


def _refilled(old: Any, new: Any) -> Any:
    items = list(new) if isinstance(new, set | deque) else dict(new)
    old.clear()
    (old.extend if isinstance(old, deque) else old.update)(items)
    return old


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _name_of(value: Any) -> str:
    module = getattr(value, "__module__", None) or "numpy"  # of numpy's functions for arrays
    return f"{module}:{getattr(value, '__qualname__', value.__name__)}"


def _found(where: str) -> Any:
    if (found := _called(where)) is None:
        raise LookupError(where)
    return found


def _called(where: str) -> Any:
    """What a name stands for in this process; None for nothing."""
    module, _, names = where.partition(":")
    found: Any = sys.modules.get(module)
    with contextlib.suppress(Exception):  # a module that imports others only then may fail
        for name in names.split("."):
            found = getattr(found, name)
        return found
    return None


def _generator(kind: str, drawn: Any) -> Any:
    """One that draws as another one would from here on; the other may be the data's too."""
    if kind == "Random":
        return goes_on(random.Random(), drawn)
    bits = getattr(np.random, drawn["bit_generator"])()
    return goes_on(getattr(np.random, kind)(bits), drawn)
