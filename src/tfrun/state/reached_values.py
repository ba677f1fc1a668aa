"""What a callback's own code reaches outside of its callback: a list that collects losses, a count.

Globals of the script, variables of the functions around a function, defaults of its arguments,
attributes of classes; and of objects of libraries, as a model or a PyDataset, the attributes that
this code assigns. What it only looks at is no place of callbacks: it may change as the training's
data is made, which is made again where a training goes on. A callback is code of the script's own
if its class is, or if it was given functions, as Keras's LambdaCallback is. What a model's own code
does in each step counts as well, where it runs eagerly.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from operator import getitem
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrun.process.sending import is_installed
from tfrun.state.plain_data import is_of_script, is_own, is_script_module

# Methods by which a training's data is read.
_OF_DATA = {"__iter__", "__next__", "__getitem__", "__len__", "__del__"}
# Methods that change what they are called of.
_CHANGING = {
    *("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"),
    *("remove", "clear", "sort", "reverse", "rotate", "update", "add", "discard", "setdefault"),
    *("fill", "subtract", "difference_update", "intersection_update", "write", "put"),
}
_BY_KERAS = {"stop_training", "built"}  # which `fit` itself keeps


class Reached(NamedTuple):
    """A place outside of callbacks that their code knows.

    Attributes:
      get: returns what is there; raises LookupError where nothing is.
      put: sets it.
      assigned: callbacks' code may put another value there.
      changes: it may change the value that is there, as it is a list.
    """

    get: Callable[[], Any]
    put: Callable[[Any], object]
    assigned: bool = True
    changes: bool = True


class Reach(NamedTuple):
    """All that callbacks' code knows.

    Attributes:
      places: by a name that is the same in each run of the script.
      attributes: the names of those that the code assigns, of whatever objects.
      names: all that it names.
    """

    places: dict[str, Reached]
    attributes: Set[str]
    names: Set[str]


def reached(callbacks: Iterable[Any], model: Any = None) -> Reach:
    """What callbacks of a training reach.

    Args:
      callbacks: of a training.
      model: what it trains, which Keras gives to them.
    """
    walk = _Walk(model)
    for number, callback in enumerate(callbacks):
        walk.of_callback(number, callback)
    if runs_in_python(model):
        walk.of_model(model)
    return walk.reach()


def runs_in_python(model: Any) -> bool:
    """Whether Python code of the script's runs in each step, which may count there as well."""
    is_eager = getattr(model, "run_eagerly", False) or tf.config.functions_run_eagerly()
    return bool(is_eager) and model is not None


class _Walk:
    """Goes from functions to what they name, and on from there."""

    def __init__(self, model: Any) -> None:
        self._found: dict[str, tuple[Reached, object]] = {}  # with what tells that it is assigned
        self._seen = {id(model)}
        self._others = {} if model is None else {"model": model}  # objects of libraries
        self._in_steps: set[str] = set()  # those of them whose own code each step runs
        self._attributes: set[str] = set()
        self._names: set[str] = set()
        self._assigned: set[object] = set()
        self._changed: set[object] = set()
        # Methods of the script's own classes, which code has to name before it runs them.
        self._methods: list[tuple[str, str, Any]] = []

    def of_callback(self, number: int, callback: Any) -> None:
        self._of_class(type(callback), runs=True)
        self._seen.add(id(callback))
        for key, value in list(vars(callback).items()):
            if isinstance(value, MethodType) and is_own(value.__self__):
                self._add(f"{number}.{key}", _constant(value.__self__))
            self._go(f"{number}.{key}", value)

    def of_model(self, model: Any) -> None:
        """A model whose steps run its code, and that of its layers."""
        layers = {f"model/{i}": one for i, one in enumerate(getattr(model, "layers", ()))}
        for name, one in {"model": model, **layers}.items():
            if is_of_script(type(one)):
                self._seen.add(id(one))
                self._others[name] = one
                self._in_steps.add(name)
                self._of_class(type(one), runs=True)

    def reach(self) -> Reach:
        while named := [one for one in self._methods if self._runs(one[1])]:
            self._methods = [one for one in self._methods if one not in named]
            for where, _, function in named:
                self._go(where, function)
        assigned, changed = self._assigned | self._attributes, self._changed | self._names
        places = {
            name: one._replace(assigned=key in assigned, changes=key is None or key in changed)
            for name, (one, key) in self._found.items()
        }
        # Of others' objects the attributes that no code of these objects assigns as well.
        for where, one in self._others.items():
            its = frozenset() if where in self._in_steps else _assigned_by(type(one))
            for name in sorted(self._attributes - its - _BY_KERAS):
                places[f"{where}.{name}"] = _attribute(one, name)
        return Reach(places, self._attributes, self._names)

    def _runs(self, method: str) -> bool:
        is_operator = method.startswith("__") and method not in _OF_DATA
        return is_operator or method in self._names

    def _go(self, name: str, value: Any) -> None:
        """To what a value names, unless it has been there."""
        if isinstance(value, MethodType):
            self._go(name, value.__self__)
            value = value.__func__
        if id(value) in self._seen:
            return
        if isinstance(value, partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                self._go(name, one)
        elif isinstance(value, FunctionType):
            self._seen.add(id(value))
            # A decorator of a library's may have given its function the name of the script's.
            if not is_installed(value.__code__.co_filename) and is_of_script(value):
                self._of_function(name, value)
        elif isinstance(value, type):
            self._of_class(value, runs=issubclass(value, keras.callbacks.Callback))
        elif is_own(value):
            self._seen.add(id(value))
            self._of_class(type(value))
            for key, one in list(vars(value).items()):
                self._go(f"{name}.{key}", one)
        elif hasattr(value, "__dict__") and not isinstance(value, ModuleType):
            self._seen.add(id(value))
            self._others[name] = value

    def _of_class(self, kind: type, *, runs: bool = False) -> None:
        """To its attributes, and to its methods: to all of them if they `run` as it trains."""
        if id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        for base in kind.__mro__:
            if not is_of_script(base):
                continue
            for key, value in list(vars(base).items()):
                name = f"{base.__module__}:{base.__qualname__}.{key}"
                function = _function_of(value)
                if function is not None and runs and key != "__init__":
                    self._go(name, function)
                elif function is not None and key != "__init__":
                    self._methods.append((name, key, function))
                elif function is None and not key.startswith("__"):
                    self._add(name, _attribute(base, key), key)

    def _of_function(self, where: str, function: Any) -> None:
        code, cells = function.__code__, function.__closure__ or ()
        named = _names(code)
        there = function.__globals__
        self._attributes |= named.attributes
        self._names |= named.any
        # Or what it calls may do so.
        may_change = named.changes or any(map(is_of_script, map(there.get, named.any)))
        for name, cell in zip(code.co_freevars, cells, strict=True):
            self._assigned |= {id(cell)} if name in named.cells else set()
            self._changed |= {id(cell)} if may_change else set()
            self._add(f"{where}/{name}", _of_cell(cell), id(cell))
        for number, value in enumerate(function.__defaults__ or ()):
            self._add(f"{where}({number})", _constant(value))
        self._assigned |= {(id(there), name) for name in named.globals}
        self._changed |= {(id(there), name) for name in named.any if may_change}
        for name in named.any:
            if name in there or name in named.globals:
                self._add(f"{function.__module__}:{name}", _item(there, name), (id(there), name))
            value = there.get(name)
            if isinstance(value, ModuleType) and is_script_module(value.__name__):
                inner = vars(value)
                for key in named.any & inner.keys():
                    self._add(f"{value.__name__}:{key}", _item(inner, key), key)

    def _add(self, name: str, place: Reached, key: object = None) -> None:
        if name not in self._found:
            self._found[name] = place, key
            try:
                value = place.get()
            except LookupError:  # code sets it later
                return
            self._go(name, value)


def _function_of(value: Any) -> Any:
    """The function that an attribute of a class is; None for none."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value if isinstance(value, FunctionType) else None


class _Names(NamedTuple):
    """Names in code: that it may look up, and that it assigns.

    Attributes:
      any: of globals and attributes.
      globals: that it assigns.
      cells: likewise, variables of functions around it.
      attributes: likewise.
      changes: it may change a list, or another value that can be changed.
    """

    any: frozenset[str]
    globals: frozenset[str]
    cells: frozenset[str]
    attributes: frozenset[str]
    changes: bool


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> _Names:
    every = list(_with_inner(code))
    names = frozenset(name for one in every for name in one.co_names)
    done = [(i.opname, i.argval) for one in every for i in dis.get_instructions(one)]
    kinds = (("STORE_GLOBAL", "DELETE_GLOBAL"), ("STORE_DEREF",), ("STORE_ATTR", "DELETE_ATTR"))
    assigned = [frozenset(name for op, name in done if op in kind) for kind in kinds]
    changes = any(op in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE") for op, _ in done)
    return _Names(names, *assigned, changes=changes or not names.isdisjoint(_CHANGING))


def _assigned_by(kind: type) -> frozenset[str]:
    """The attributes that an object's own code assigns, after it is made."""
    own = (vars(base).items() for base in kind.__mro__ if is_of_script(base))
    functions = (_function_of(value) for pairs in own for key, value in pairs if key != "__init__")
    return frozenset().union(*(_names(one.__code__).attributes for one in functions if one))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _with_inner(one)


def _constant(value: Any) -> Reached:
    return Reached(lambda: value, lambda new: None)  # what it holds may change


def _item(there: dict[str, Any], name: str) -> Reached:
    return Reached(partial(getitem, there, name), partial(there.__setitem__, name))


def _attribute(one: Any, name: str) -> Reached:
    """Of an object or a class itself, none that it inherits."""
    return Reached(partial(getitem, vars(one), name), partial(setattr, one, name))


def _of_cell(cell: Any) -> Reached:
    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            raise LookupError from None

    return Reached(get, partial(setattr, cell, "cell_contents"))
