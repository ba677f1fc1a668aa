"""What a callback's own code reaches outside of its callback: a list that collects losses, a count.

Globals of the script, variables of the functions around a function, defaults of its arguments,
attributes of classes. A callback is code of the script's own if its class is, or if it was given
functions, as Keras's LambdaCallback is.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from tfrun.process.sending import is_installed
from tfrun.state.plain_data import is_of_script, is_own

_NOTHING = object()


class Reached(NamedTuple):
    """A place outside of callbacks that their code knows.

    Attributes:
      get: returns what is there; raises LookupError where nothing is.
      put: sets it.
    """

    get: Callable[[], Any]
    put: Callable[[Any], object]


def reached(callbacks: Iterable[Any]) -> dict[str, Reached]:
    """All such places, by a name that is the same in each run of the script."""
    walk = _Walk()
    for number, callback in enumerate(callbacks):
        walk.of_callback(number, callback)
    return walk.found


class _Walk:
    """Goes from functions to what they name, and on from there."""

    def __init__(self) -> None:
        self.found: dict[str, Reached] = {}
        self._seen: set[int] = set()

    def of_callback(self, number: int, callback: Any) -> None:
        self._of_class(type(callback))
        for key, value in list(vars(callback).items()):
            if isinstance(value, MethodType) and is_own(value.__self__):
                self._add(f"{number}.{key}", _constant(value.__self__))
            self._go(value)

    def _go(self, value: Any) -> None:
        """To what a value names, unless it has been there."""
        if id(value) in self._seen:
            return
        if isinstance(value, MethodType):
            self._go(value.__self__)
            value = value.__func__
        elif isinstance(value, functools.partial):
            for one in (value.func, *value.args, *value.keywords.values()):
                self._go(one)
            return
        if isinstance(value, FunctionType):
            self._seen.add(id(value))
            if not is_installed(value.__code__.co_filename) and is_of_script(value):
                self._of_function(value)
        elif isinstance(value, type):
            self._of_class(value)
        elif is_own(value):
            self._seen.add(id(value))
            self._of_class(type(value))
            for one in list(vars(value).values()):
                self._go(one)

    def _of_class(self, kind: type) -> None:
        if id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        for base in kind.__mro__:
            if not is_of_script(base):
                continue
            for key, value in list(vars(base).items()):
                if (function := _function_of(value)) is not None:
                    self._go(function)
                elif not key.startswith("__"):
                    self._add(f"{base.__module__}:{base.__qualname__}.{key}", _attribute(base, key))

    def _of_function(self, function: Any) -> None:
        where = f"{function.__module__}:{function.__qualname__}"
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self._add(f"{where}/{name}", _of_cell(cell))
        for number, value in enumerate(function.__defaults__ or ()):
            self._add(f"{where}({number})", _constant(value))
        there = function.__globals__
        names, assigned = _names(function.__code__)
        for name in names:
            if name in there or name in assigned:
                self._add(f"{function.__module__}:{name}", _item(there, name))
            value = there.get(name)
            if isinstance(value, ModuleType) and _is_own_module(value):
                for inner in names & vars(value).keys():
                    self._add(f"{value.__name__}:{inner}", _item(vars(value), inner))

    def _add(self, name: str, place: Reached) -> None:
        if name not in self.found:
            self.found[name] = place
            try:
                self._go(place.get())
            except LookupError:  # code sets it later
                return


def _is_own_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    is_tfrun = module.__name__.partition(".")[0] == "tfrun"
    return isinstance(file, str) and not is_tfrun and not is_installed(file)


def _function_of(value: Any) -> Any:
    """The function that an attribute of a class is; None for none."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value if isinstance(value, FunctionType) else None


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that code may look up, and those of the globals that it assigns."""
    names: set[str] = set()
    assigned: set[str] = set()
    for one in _with_inner(code):
        names.update(one.co_names)
        assigned.update(i.argval for i in dis.get_instructions(one) if i.opname == "STORE_GLOBAL")
    return frozenset(names), frozenset(assigned)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _with_inner(one)


def _constant(value: Any) -> Reached:
    return Reached(lambda: value, lambda new: None)  # what it holds may change


def _item(there: dict[str, Any], name: str) -> Reached:
    return Reached(lambda: there[name], functools.partial(there.__setitem__, name))


def _attribute(kind: type, name: str) -> Reached:
    def get() -> Any:
        if (value := vars(kind).get(name, _NOTHING)) is _NOTHING:
            raise LookupError(name)
        return value

    return Reached(get, functools.partial(setattr, kind, name))


def _of_cell(cell: Any) -> Reached:
    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            raise LookupError from None

    return Reached(get, functools.partial(setattr, cell, "cell_contents"))
